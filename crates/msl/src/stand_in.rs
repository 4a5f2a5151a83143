//! An engine that compiles a kernel's MSL as C++ and runs it on the CPU.

use std::{
    collections::HashMap,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::{
    clang::Clang,
    cpp::cpp,
    program::Program,
    server::{Engine, Launch},
    text::Form,
};

/// What a kernel is compiled with, by file names.
const FILES: [(&str, &str); 6] = [
    ("metal_stdlib", include_str!("../stand_in/metal_stdlib")),
    ("simd/simd.h", include_str!("../stand_in/simd/simd.h")),
    ("address_spaces.h", include_str!("../stand_in/address_spaces.h")),
    ("kernel.h", include_str!("../stand_in/kernel.h")),
    ("fiber.h", include_str!("../stand_in/fiber.h")),
    ("scheduler.cpp", include_str!("../stand_in/scheduler.cpp")),
];

/// An engine that runs launches on the CPU, each twice, with threads in opposite orders.
///
/// A launch fails where a thread leaves a buffer or its threadgroup memory, where threads of a group come to different
/// barriers, where an operation is undefined, where it does not end, and where its results depend on the order of
/// threads. Address spaces are checked as well.
pub struct StandIn {
    clang: Clang,
    folder: PathBuf,
    form: Form,
    /// Changes a text before it is compiled, for tests of what is noticed.
    edit: Box<dyn Fn(&str) -> String + Send>,
    programs: HashMap<u64, Program>,
}

impl StandIn {
    /// An engine for one form of the text, which works in `folder`.
    ///
    /// # Errors
    ///
    /// If the folder cannot be written, or the scheduler not be compiled.
    pub fn new(clang: Clang, folder: &Path, form: Form) -> Result<Self, String> {
        // Folders of other versions may be in use.
        let folder = folder.join(format!("{:016x}", hash(&(FILES, clang.program()))));
        let engine = Self { clang, folder, form, edit: Box::new(str::to_string), programs: HashMap::new() };
        if !engine.folder.join("scheduler.o").exists() {
            let failed = |error| format!("{} cannot be written: {error}", engine.folder.display());
            fs::create_dir_all(engine.folder.join("simd")).map_err(failed)?;
            for (name, content) in FILES {
                let unfinished = engine.folder.join(unique(name));
                fs::write(&unfinished, content)
                    .and_then(|()| fs::rename(&unfinished, engine.folder.join(name)))
                    .map_err(failed)?;
            }
            let unfinished = unique("scheduler.o");
            engine.clang.run(&engine.folder, &["-c", "scheduler.cpp", "-o", &unfinished])?;
            fs::rename(engine.folder.join(unfinished), engine.folder.join("scheduler.o")).map_err(failed)?;
        }
        Ok(engine)
    }

    /// The same engine, with every text changed first.
    pub fn with_edit(self, edit: impl Fn(&str) -> String + Send + 'static) -> Self {
        Self { edit: Box::new(edit), ..self }
    }

    /// The kernel's program, compiled and started. CubeCL names and orders values anew in each process, so that a
    /// program is of no use to the next.
    fn start(&self, name: &str, source: &str) -> Result<Program, String> {
        let file = unique(&format!("{}-{name}", self.form.name()));
        let path = self.folder.join(format!("{file}.cpp"));
        fs::write(&path, source).map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        let cpp = format!("{file}.cpp");
        self.clang.check_address_spaces(&self.folder, &cpp)?;
        // To naga a buffer of unknown length is an array of one element.
        let bounds =
            if self.form == Form::Naga { "-fno-sanitize=array-bounds" } else { "-fsanitize=array-bounds" };
        self.clang.run(&self.folder, &[bounds, &cpp, "scheduler.o", "-o", &file])?;
        // Kept where it failed, to be looked at.
        let _ = fs::remove_file(path);
        Program::start(&self.folder.join(file))
    }
}

impl Engine for StandIn {
    fn launch(&mut self, mut launch: Launch<'_>) -> Result<(), String> {
        let name = &launch.text.name;
        let text = launch.text.form(self.form).ok_or("the kernel has no text in this form")?;
        let source = cpp(&(self.edit)(text), launch.text.buffers, launch.text.threads)?;
        let failed = |error| format!("`{name}`: {error}");
        let key = hash(&source);
        if !self.programs.contains_key(&key) {
            self.programs.insert(key, self.start(name, &source).map_err(failed)?);
        }
        let program = self.programs.get_mut(&key).expect("just inserted");
        program.launch(&mut launch).map_err(failed)
    }
}

/// A name that no other process and no other thread gives a file.
fn unique(name: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
