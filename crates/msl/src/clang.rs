//! The compiler that takes a kernel's MSL for C++.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// The oldest version with 16-bit floats, and one that is not there yet.
const VERSIONS: std::ops::Range<u32> = 15..40;

/// A clang.
#[derive(Clone, Debug)]
pub struct Clang {
    program: String,
    fast_math: bool,
}

impl Clang {
    /// Finds a clang that can compile what the stand-in needs.
    ///
    /// # Errors
    ///
    /// If there is none: one line that says what to install.
    pub fn find() -> Result<Self, String> {
        let programs =
            ["clang".into()].into_iter().chain(VERSIONS.rev().map(|version| format!("clang-{version}")));
        let mut problem = format!("there is no clang from version {} up", VERSIONS.start);
        for program in programs {
            let clang = Self { program, fast_math: false };
            match clang.try_out() {
                Ok(()) => return Ok(clang),
                Err(Some(error)) => problem = format!("{} cannot be used: {error}", clang.program),
                Err(None) => {}
            }
        }
        Err(format!(
            "{problem}; `cargo xtask test` installs one where it may, as does `apt-get install clang`"
        ))
    }

    /// The same compiler, allowed what Apple's is unless it is told otherwise: sums in another order, and no heed of NaNs.
    pub fn with_fast_math(self) -> Self {
        Self { fast_math: true, ..self }
    }

    /// The name that it is run by.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Whether the program is there, and, if so, what it lacks.
    fn try_out(&self) -> Result<(), Option<String>> {
        let found =
            Command::new(&self.program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            return Err(None);
        }
        let folder = std::env::temp_dir().join(format!("rnn-msl-{}", std::process::id()));
        let tried = fs::create_dir_all(&folder).map_err(|error| error.to_string()).and_then(|()| {
            let text = "int main(int n, char**) { _Float16 a = n; return float(a * a) != 1; }";
            fs::write(folder.join("try.cpp"), text).map_err(|error| error.to_string())?;
            self.run(&folder, &["try.cpp", "-o", "try"])
        });
        let _ = fs::remove_dir_all(&folder);
        tried.map_err(Some)
    }

    /// Runs the compiler in a folder, for C++ that is checked as it runs.
    ///
    /// # Errors
    ///
    /// What the compiler says, its first lines.
    pub fn run(&self, folder: &Path, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command.args([
            "-std=c++17",
            "-O1",
            // Else sums and products as they stand in the text.
            if self.fast_math { "-ffast-math" } else { "-ffp-contract=off" },
            // What is not set is not a number.
            "-ftrivial-auto-var-init=pattern",
            "-fsanitize=alignment,bool,enum,shift,signed-integer-overflow,integer-divide-by-zero,null",
            "-fsanitize-trap=all",
            "-fno-exceptions",
            "-fno-rtti",
            "-Wall",
            "-Werror",
            // Attributes of MSL that a CPU has no use for; values that CubeCL names and does not use.
            "-Wno-unknown-attributes",
            "-Wno-ignored-attributes",
            "-Wno-unused",
            "-Wno-parentheses-equality",
            "-Wno-missing-braces",
            "-Wno-duplicate-decl-specifier",
            "-Wno-array-bounds",
            // NaNs in the standard library, where fast math has none.
            "-Wno-unknown-warning-option",
            "-Wno-nan-infinity-disabled",
            "-I.",
        ]);
        succeed(
            command.current_dir(folder).args(arguments).args(["-Wno-unused-command-line-argument", "-lm"]),
        )
    }

    /// Checks a kernel's address spaces, with clang's C++ for OpenCL, which has them.
    ///
    /// # Errors
    ///
    /// What the compiler says, its first lines.
    pub fn check_address_spaces(&self, folder: &Path, source: &str) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command
            .current_dir(folder)
            .args(["-x", "clcpp", "-cl-std=clc++2021", "-cl-no-stdinc", "--target=spir64", "-fsyntax-only"])
            .args(["-DSTAND_IN_ADDRESS_SPACES", "-Wno-everything", "-I.", source]);
        succeed(&mut command)
    }
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{} cannot be run: {error}", command.get_program().to_string_lossy()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).lines().take(20).collect::<Vec<_>>().join("\n")),
    }
}
