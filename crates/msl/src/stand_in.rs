//! Compiles a kernel's MSL as C++ and runs it on the CPU.

use std::{
    collections::HashMap,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use crate::{
    server::{Engine, Launch},
    signature::{Argument, Bound, Signature},
    text::Form,
};

const STANDARD_LIBRARY: &str = include_str!("../stand_in/metal_stdlib");
const ADDRESS_SPACES: &str = include_str!("../stand_in/address_spaces.h");
const KERNEL: &str = include_str!("../stand_in/kernel.h");
const SCHEDULER: &str = include_str!("../stand_in/scheduler.cpp");

/// A launch that runs longer waits for something that does not come.
const PATIENCE: Duration = Duration::from_secs(300);

/// The orders in which threads run; a kernel that is right gives the same bits in both.
const ORDERS: [&str; 2] = ["ascending", "descending"];

/// Compiler and flags.
#[derive(Clone, Debug)]
pub struct Clang {
    program: String,
}

impl Clang {
    /// Finds a clang that has what the stand-in needs: 16-bit floats and the address sanitizer.
    pub fn find() -> Result<Self, String> {
        let programs = (17..=30).rev().map(|version| format!("clang-{version}")).chain(["clang".into()]);
        let mut problem = "there is no clang from version 17 up".to_string();
        for program in programs {
            let clang = Self { program };
            match clang.try_out() {
                Ok(()) => return Ok(clang),
                Err(Some(error)) => problem = format!("{} cannot be used: {error}", clang.program),
                Err(None) => {}
            }
        }
        Err(format!(
            "{problem}; on Debian and Ubuntu, `apt-get install clang-19 libclang-rt-19-dev` installs one"
        ))
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
            let source = folder.join("try.cpp");
            let text = "int main(int n, char**) { __bf16 a = n; _Float16 b = n; return float(a * a) + float(b * b) != 2; }";
            fs::write(&source, text).map_err(|error| error.to_string())?;
            self.run(&folder, &["try.cpp", "-o", "try"])
        });
        let _ = fs::remove_dir_all(&folder);
        tried.map_err(Some)
    }

    /// Runs the compiler in a folder, for C++ that is checked as it runs.
    fn run(&self, folder: &Path, arguments: &[&str]) -> Result<(), String> {
        let output = Command::new(&self.program)
            .current_dir(folder)
            .args([
                "-std=c++17",
                "-O1",
                // Sums and products as they stand in the text.
                "-ffp-contract=off",
                // What is not set is not a number.
                "-ftrivial-auto-var-init=pattern",
                "-fsanitize=address,alignment,bool,enum,shift,signed-integer-overflow,integer-divide-by-zero,null",
                "-fno-sanitize-recover=all",
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
                // Buffers of unknown length are arrays of one element to naga.
                "-Wno-array-bounds",
                "-I.",
            ])
            .args(arguments)
            .args(["--rtlib=compiler-rt", "-Wno-unused-command-line-argument", "-lm"])
            .output()
            .map_err(|error| format!("{} cannot be run: {error}", self.program))?;
        match output.status.success() {
            true => Ok(()),
            false => {
                Err(String::from_utf8_lossy(&output.stderr).lines().take(20).collect::<Vec<_>>().join("\n"))
            }
        }
    }

    /// Checks address spaces, with clang's C++ for OpenCL, which has them.
    fn check_address_spaces(&self, folder: &Path, source: &str) -> Result<(), String> {
        let output = Command::new(&self.program)
            .current_dir(folder)
            .args(["-x", "clcpp", "-cl-std=clc++2021", "-cl-no-stdinc", "--target=spir64", "-fsyntax-only"])
            .args(["-DSTAND_IN_ADDRESS_SPACES", "-Wno-everything", "-I.", source])
            .output()
            .map_err(|error| format!("{} cannot be run: {error}", self.program))?;
        match output.status.success() {
            true => Ok(()),
            false => {
                Err(String::from_utf8_lossy(&output.stderr).lines().take(20).collect::<Vec<_>>().join("\n"))
            }
        }
    }
}

/// An engine that runs launches on the CPU.
pub struct StandIn {
    clang: Clang,
    folder: PathBuf,
    form: Form,
    /// Changes a text before it is compiled, for tests of what is noticed.
    edit: fn(String) -> String,
    programs: HashMap<u64, PathBuf>,
    launches: usize,
}

impl StandIn {
    /// An engine for one form of the text. What it compiles it keeps in `folder`, where later runs find it.
    pub fn new(clang: Clang, folder: &Path, form: Form) -> Result<Self, String> {
        let engine = Self {
            clang,
            folder: folder.into(),
            form,
            edit: |text| text,
            programs: HashMap::new(),
            launches: 0,
        };
        let unmade = |error| format!("{} cannot be made: {error}", folder.display());
        fs::create_dir_all(folder.join("simd")).map_err(unmade)?;
        for (name, content) in [
            ("metal_stdlib", STANDARD_LIBRARY),
            ("address_spaces.h", ADDRESS_SPACES),
            ("simd/simd.h", "// naga includes this, and uses nothing of it.\n"),
            ("kernel.h", KERNEL),
            ("scheduler.cpp", SCHEDULER),
        ] {
            engine.write(name, content)?;
        }
        let object = engine.scheduler();
        if !folder.join(&object).exists() {
            engine.clang.run(folder, &["-c", "scheduler.cpp", "-o", &object])?;
        }
        Ok(engine)
    }

    /// The same engine, with every text changed first.
    pub fn with_edit(self, edit: fn(String) -> String) -> Self {
        Self { edit, ..self }
    }

    fn write(&self, name: &str, content: &str) -> Result<(), String> {
        let path = self.folder.join(name);
        // Another process may be compiling what is there.
        if fs::read_to_string(&path).is_ok_and(|there| there == content) {
            return Ok(());
        }
        fs::write(&path, content).map_err(|error| format!("{} cannot be written: {error}", path.display()))
    }

    fn scheduler(&self) -> String {
        format!("scheduler-{:016x}.o", hash(&(SCHEDULER, KERNEL, &self.clang.program)))
    }

    /// The program that runs a kernel, compiled if need be.
    fn program(&mut self, launch: &Launch<'_>) -> Result<PathBuf, String> {
        let text = launch.text.form(self.form).ok_or("the kernel has no text in this form")?;
        let text = (self.edit)(text.to_string());
        let source = cpp(&text, launch.text.buffers, launch.text.threads)?;
        // CubeCL names and orders values anew in each process, so that the same kernel rarely has the same text.
        let key = hash(&(&source, STANDARD_LIBRARY, SCHEDULER, &self.clang.program));
        if let Some(program) = self.programs.get(&key) {
            return Ok(program.clone());
        }
        let name = format!("{}-{}-{key:016x}", self.form.name(), launch.text.name);
        let program = self.folder.join(&name);
        if !program.exists() {
            let file = format!("{name}.cpp");
            self.write(&file, &source)?;
            let failed = |error| format!("`{}` in {file}: {error}", launch.text.name);
            self.clang.check_address_spaces(&self.folder, &file).map_err(failed)?;
            let unfinished = format!("{name}.part");
            self.clang.run(&self.folder, &[&file, &self.scheduler(), "-o", &unfinished]).map_err(failed)?;
            fs::rename(self.folder.join(unfinished), &program).map_err(|error| error.to_string())?;
        }
        self.programs.insert(key, program.clone());
        Ok(program)
    }
}

impl Engine for StandIn {
    fn launch(&mut self, mut launch: Launch<'_>) -> Result<(), String> {
        let name = &launch.text.name;
        let program = self.program(&launch)?;
        self.launches += 1;
        let file = |what: &str| {
            let name = format!("launch-{}-{:p}-{what}", std::process::id(), self);
            self.folder.join(name)
        };
        let (input, output) = (file("in"), file("out"));
        let io = |error: std::io::Error| format!("a launch's file: {error}");
        fs::write(&input, launch_file(&launch)).map_err(io)?;
        let mut results = Vec::new();
        for order in ORDERS {
            let ended = wait(Command::new(&program).args([&input, &output]).arg(order))
                .map_err(|error| format!("`{name}`: {error}"))?;
            if !ended.status.success() {
                let message = String::from_utf8_lossy(&ended.stderr);
                let lines: Vec<_> =
                    message.lines().filter(|line| !line.contains("WARNING")).take(12).collect();
                return Err(format!("`{name}` failed with threads {order}: {}", lines.join("\n")));
            }
            results.push(fs::read(&output).map_err(io)?);
        }
        for path in [&input, &output] {
            fs::remove_file(path).map_err(io)?;
        }
        if results[0] != results[1] {
            return Err(format!("`{name}` depends on the order of its threads: a barrier is missing"));
        }
        let mut rest = &results[0][..];
        for buffer in &mut launch.buffers {
            let (bytes, after) = rest.split_at(buffer.bytes.len());
            buffer.bytes.copy_from_slice(bytes);
            rest = after;
        }
        Ok(())
    }
}

/// What the scheduler reads.
fn launch_file(launch: &Launch<'_>) -> Vec<u8> {
    // The info, and the sizes that naga asks for where a kernel reads the length of a buffer.
    let sizes: Vec<u8> =
        launch.buffers.iter().flat_map(|buffer| (buffer.bytes.len() as u32).to_le_bytes()).collect();
    let mut buffers: Vec<&[u8]> = launch.buffers.iter().map(|buffer| &*buffer.bytes).collect();
    buffers.push(&launch.info);
    buffers.push(&sizes);
    let header = launch.count.into_iter().chain([buffers.len() as u32]);
    let mut file: Vec<u8> = header.flat_map(u32::to_le_bytes).collect();
    for buffer in buffers {
        file.extend((buffer.len() as u64).to_le_bytes());
        file.extend(buffer);
    }
    file
}

/// Runs a program that must end by itself.
fn wait(command: &mut Command) -> Result<Output, String> {
    let error = |error: std::io::Error| format!("cannot be run: {error}");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(error)?;
    let start = Instant::now();
    while child.try_wait().map_err(error)?.is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().map_err(error)?;
            child.wait().map_err(error)?;
            return Err("does not end: a threadgroup waits for another, or a loop has no bound".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.wait_with_output().map_err(error)
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The text with what the scheduler calls.
fn cpp(text: &str, buffers: usize, threads: [u32; 3]) -> Result<String, String> {
    let signature = Signature::read(text, buffers)?;
    let text = share_declared_memory(text)?.replace("[[kernel]] void", "STAND_IN_KERNEL void");
    let mut statements = String::new();
    let mut arguments = Vec::new();
    for (position, argument) in signature.arguments.iter().enumerate() {
        arguments.push(match &argument.bound {
            Bound::Buffer(number) => bind(argument, &format!("buffers[{number}]")),
            Bound::BuiltIn(name) => built_in(name)?.to_string(),
            Bound::Threadgroup => {
                let kind = argument.kind.trim_start_matches("threadgroup ").trim_end_matches('&');
                let name = format!("shared_{position}");
                statements +=
                    &format!("    static {kind} {name};\n    stand_in_shared(&{name}, sizeof({name}));\n");
                name
            }
        });
    }
    let [x, y, z] = threads;
    Ok(format!(
        "{text}\n#ifndef STAND_IN_ADDRESS_SPACES\n#include \"kernel.h\"\n\
         extern \"C\" {{\nextern const unsigned stand_in_threads[3] = {{{x}, {y}, {z}}};\n\
         void stand_in_kernel(const StandInThread* self, void** buffers) {{\n{statements}    {}(\n        {});\n}}\n}}\n\
         #endif\n",
        signature.name,
        arguments.join(",\n        "),
    ))
}

/// A buffer as the argument's type, a pointer or a reference.
fn bind(argument: &Argument, buffer: &str) -> String {
    match argument.kind.strip_suffix('&') {
        Some(kind) => format!("*({kind}*){buffer}"),
        None => format!("({}){buffer}", argument.kind),
    }
}

/// What a thread knows of itself.
fn built_in(name: &str) -> Result<&'static str, String> {
    Ok(match name {
        "thread_index_in_threadgroup" => "self->index",
        "thread_position_in_threadgroup" => "uint3{self->position[0], self->position[1], self->position[2]}",
        "threadgroup_position_in_grid" => "uint3{self->group[0], self->group[1], self->group[2]}",
        "threadgroups_per_grid" => "uint3{self->groups[0], self->groups[1], self->groups[2]}",
        "threads_per_simdgroup" => "32u",
        "simdgroup_index_in_threadgroup" => "self->index / 32",
        "thread_index_in_simdgroup" => "self->index % 32",
        _ => return Err(format!("the stand-in does not know [[{name}]]")),
    })
}

/// Threadgroup memory that a kernel declares, `alignas(16) threadgroup char name[size];`, made one for all threads.
fn share_declared_memory(text: &str) -> Result<String, String> {
    let mut shared = String::with_capacity(text.len());
    for line in text.lines() {
        match line.split_once(") threadgroup char ") {
            Some((alignment, declaration)) if alignment.trim_start().starts_with("alignas(") => {
                let array = declaration.trim_end().strip_suffix(';').and_then(|array| array.split_once('['));
                let (name, size) = array
                    .and_then(|(name, size)| Some((name, size.strip_suffix(']')?)))
                    .ok_or_else(|| format!("threadgroup memory is declared in an unknown way: {line}"))?;
                shared += &format!("STAND_IN_SHARED({alignment}), {name}, {size})\n");
            }
            _ => {
                shared += line;
                shared.push('\n');
            }
        }
    }
    Ok(shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_threadgroup_memory_is_shared() {
        let text =
            "void walk() {\nalignas(16) threadgroup char a_1[256];\nthreadgroup float* const b = 0;\n}";
        let shared = share_declared_memory(text).expect("known");
        assert!(
            shared.contains("STAND_IN_SHARED(alignas(16), a_1, 256)\nthreadgroup float* const b"),
            "{shared}"
        );
        assert!(share_declared_memory("alignas(16) threadgroup char a;").is_err());
    }

    #[test]
    fn an_unknown_built_in_is_named() {
        let text = "[[kernel]] void walk(uint const a [[threads_of_a_toaster]]) {}";
        assert!(cpp(text, 0, [1, 1, 1]).unwrap_err().contains("[[threads_of_a_toaster]]"));
    }
}
