//! The program as a user runs it.
#![cfg(feature = "flex")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("char-lm-command-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn char_lm(out: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_char-lm"))
        .args(["--device", "flex", "--out"])
        .arg(out)
        .args(arguments)
        .output()
        .unwrap()
}

/// A small model on a text of 6,000 characters.
fn small(text: &Path) -> Vec<&str> {
    let text = text.to_str().unwrap();
    vec!["--text", text, "--batch", "4", "--window", "8", "--hidden", "8", "--embedding", "4"]
}

/// Asserts that the program ended with exit code 1 and this line.
#[track_caller]
fn assert_refused(output: &Output, line: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with(line), "{stderr:?} should start with {line:?}");
}

#[test]
fn a_run_leaves_a_checkpoint_a_table_and_a_picture() {
    let folder = folder("run");
    let text = folder.join("text");
    std::fs::write(&text, "hello, world\n".repeat(460)).unwrap();
    let out = folder.join("out");
    let run = |more: &[&str]| {
        let arguments = [&small(&text)[..], &["--sample", "20", "--prompt", "hell"], more].concat();
        let output = char_lm(&out, &arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let rows = || std::fs::read_to_string(out.join("curve.csv")).unwrap().lines().count() - 1;

    let printed = run(&["--steps", "6", "--evaluate-every", "3"]);
    assert!(printed.contains("device:  Flex, on the CPU"), "{printed}");
    assert!(printed.contains("step      3  loss") && printed.contains("held out"), "{printed}");
    let sample = printed.split("at temperature 0.7:\n\n").nth(1).unwrap();
    assert!(sample.starts_with("hell") && sample.trim_end_matches('\n').chars().count() >= 4, "{printed}");
    assert_eq!(rows(), 6);
    assert!(std::fs::read_to_string(out.join("curve.svg")).unwrap().starts_with("<svg"));

    let printed = run(&["--steps", "9", "--resume"]);
    assert!(printed.contains("resumed: after step 6 of 9"), "{printed}");
    assert_eq!(rows(), 9);
    let refused = char_lm(&out, &["--resume", "--hidden", "9"]);
    assert_refused(&refused, "error: --hidden must be the checkpoint's 8 with --resume, got 9");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn bad_input_gives_one_line_and_exit_code_1() {
    let folder = folder("bad");
    let out = folder.join("out");
    let missing = folder.join("missing.txt");
    let refused = char_lm(&out, &["--text", missing.to_str().unwrap()]);
    assert_refused(&refused, &format!("error: can't read the text {}: ", missing.display()));
    let binary = folder.join("binary");
    std::fs::write(&binary, b"\x7fELF\xff\xfe").unwrap();
    let refused = char_lm(&out, &["--text", binary.to_str().unwrap()]);
    let line = format!("error: the text {} must be UTF-8, but its byte 4 is not", binary.display());
    assert_refused(&refused, &line);
    let refused = char_lm(&out, &["--text", folder.to_str().unwrap()]);
    assert_refused(&refused, &format!("error: can't read the text {}: ", folder.display()));
    assert_refused(&char_lm(&out, &["--resume"]), "error: can't read ");
    assert_refused(&char_lm(&out, &["--steps", "0"]), "error: --steps must be from 1 up, got 0");

    let text = folder.join("text");
    std::fs::write(&text, "hello, world\n".repeat(460)).unwrap();
    let refused = char_lm(&text, &small(&text));
    assert_refused(&refused, &format!("error: can't make the folder {}: ", text.display()));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_default_text_needs_cargos_registry() {
    let folder = folder("registry");
    let output = Command::new(env!("CARGO_BIN_EXE_char-lm"))
        .args(["--device", "flex", "--out"])
        .arg(&folder)
        .env("CARGO_HOME", &folder)
        .output()
        .unwrap();
    let line =
        format!("error: can't read cargo's registry {}", folder.join("registry").join("src").display());
    assert_refused(&output, &line);
    std::fs::remove_dir_all(folder).unwrap();
}
