//! A compiled kernel, which runs as a process of its own and is sent one launch after the other.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::server::Launch;

/// A running kernel.
pub struct Program {
    child: Child,
}

impl Program {
    /// Starts the program in a file, which nothing needs any more then.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(file: &Path) -> Result<Self, String> {
        let mut command = Command::new(file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = loop {
            match command.spawn() {
                // Another thread started a process of its own while the file was still open here for writing.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                started => break started.map_err(|error| format!("cannot be started: {error}"))?,
            }
        };
        // The process has it open.
        let _ = fs::remove_file(file);
        Ok(Self { child })
    }

    /// Runs a launch to its end.
    ///
    /// # Errors
    ///
    /// What the kernel did that it must not do; the program has ended then.
    pub fn launch(&mut self, launch: &mut Launch<'_>) -> Result<(), String> {
        self.exchange(launch).map_err(|error| {
            let mut said = String::new();
            if let Some(stderr) = &mut self.child.stderr {
                let _ = stderr.read_to_string(&mut said);
            }
            match said.trim() {
                "" => format!("it ended: {error}"),
                said => said.into(),
            }
        })
    }

    fn exchange(&mut self, launch: &mut Launch<'_>) -> std::io::Result<()> {
        let (Some(input), Some(output)) = (&mut self.child.stdin, &mut self.child.stdout) else {
            unreachable!("both are pipes");
        };
        input.write_all(&message(launch))?;
        input.flush()?;
        output.read_exact(&mut [0; 4])?;
        for buffer in &mut launch.buffers {
            output.read_exact(buffer.bytes)?;
        }
        // What the kernel only reads.
        let mut rest = vec![0; launch.info.len() + 4 * launch.buffers.len()];
        output.read_exact(&mut rest)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// What the scheduler reads.
fn message(launch: &Launch<'_>) -> Vec<u8> {
    // The info, and the sizes that naga asks for where a kernel reads the length of a buffer.
    let sizes: Vec<u8> =
        launch.buffers.iter().flat_map(|buffer| (buffer.bytes.len() as u32).to_le_bytes()).collect();
    let mut buffers: Vec<&[u8]> = launch.buffers.iter().map(|buffer| &*buffer.bytes).collect();
    buffers.push(&launch.info);
    buffers.push(&sizes);
    let header = launch.count.into_iter().chain([buffers.len() as u32]);
    let mut message: Vec<u8> = header.flat_map(u32::to_le_bytes).collect();
    for buffer in buffers {
        message.extend((buffer.len() as u64).to_le_bytes());
        message.extend(buffer);
    }
    message
}
