//! The runner: what it prints, and its exit code.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use safetensors::{SafeTensors, tensor::TensorView};

use crate::cases;

/// A folder of its own for a test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn copy(self, case: &str) -> Self {
        let file = format!("{case}.safetensors");
        fs::copy(cases().join(&file), self.0.join(file)).unwrap();
        self
    }

    fn write(self, file: &str, bytes: &[u8]) -> Self {
        fs::write(self.0.join(file), bytes).unwrap();
        self
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It is only test output: what can't be removed is of no consequence.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the runner; returns its exit code, and the lines it printed.
fn run(arguments: &[&str]) -> (i32, Vec<String>) {
    let output = Command::new(env!("CARGO_BIN_EXE_conformance")).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), text.lines().map(str::to_string).collect())
}

fn run_on_flex(folder: &Path) -> (i32, Vec<String>) {
    run(&["--cases", folder.to_str().unwrap(), "--device", "flex"])
}

/// A case, with `change` made to the bytes of one of its tensors, or to its description.
fn changed(
    case: &str,
    tensor: &str,
    change: impl Fn(&mut Vec<u8>),
    describe: impl Fn(&str) -> String,
) -> Vec<u8> {
    let bytes = fs::read(cases().join(format!("{case}.safetensors"))).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let description = describe(&metadata.metadata().as_ref().unwrap()["case"]);
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let data: Vec<_> = tensors
        .iter()
        .map(|(name, view)| {
            let mut data = view.data().to_vec();
            if name == tensor {
                change(&mut data);
            }
            (name, view.dtype(), view.shape().to_vec(), data)
        })
        .collect();
    let views = data
        .iter()
        .map(|(name, dtype, shape, data)| (*name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    safetensors::serialize(views, Some(HashMap::from([("case".into(), description)]))).unwrap()
}

/// Adds to the first of the `f64` numbers.
fn add(amount: f64) -> impl Fn(&mut Vec<u8>) {
    move |data| {
        let first = f64::from_le_bytes(data[..8].try_into().unwrap());
        data[..8].copy_from_slice(&(first + amount).to_le_bytes());
    }
}

#[test]
fn cases_that_pass() {
    let folder = Folder::new("pass").copy("gru_clip").copy("onnx_rnn_forward").write("notes.txt", b"no case");
    let (code, lines) = run_on_flex(&folder.0);
    assert_eq!(code, 0, "{lines:?}");
    assert_eq!(lines.last().unwrap(), "2 passed, 0 failed");
    assert_eq!(
        lines.iter().filter(|line| line.contains("passed, ")).count(),
        1,
        "one closing line: {lines:?}"
    );
    assert!(!lines.iter().any(|line| line.contains("FAILED")), "{lines:?}");
}

#[test]
fn a_wrong_number_is_shown_with_its_tensor_and_error() {
    for tensor in ["output", "final_state", "grad.source", "grad.recurrent_weight", "grad.bias"] {
        let same = |text: &str| text.to_string();
        let wrong = changed("gru_clip", &format!("expect.{tensor}"), add(0.125), same);
        let folder = Folder::new(tensor).copy("rnn_clip").write("wrong.safetensors", &wrong);
        let (code, lines) = run_on_flex(&folder.0);
        assert_eq!(code, 1, "{lines:?}");
        assert_eq!(lines.last().unwrap(), "1 passed, 1 failed");
        // Once for each element type.
        let failed: Vec<_> = lines.iter().filter(|line| line.starts_with("FAILED")).collect();
        assert_eq!(failed.len(), 2, "{lines:?}");
        for line in failed {
            for part in [&format!("FAILED wrong: {tensor} ("), "largest error 1.250e-1 at [0"] {
                assert!(line.contains(part), "{line:?} does not say {part:?}");
            }
        }
    }
}

/// A number that only a float64 run can tell from the right one.
#[test]
fn the_element_type_decides_the_tolerance() {
    let wrong = changed("gru_clip", "expect.output", add(1e-8), |text| text.to_string());
    let folder = Folder::new("close").write("close.safetensors", &wrong);
    let path = folder.0.to_str().unwrap();
    let run = |dtype| run(&["--cases", path, "--device", "flex", "--dtype", dtype]);
    assert_eq!(run("f32").0, 0);
    assert_eq!(run("f64").0, 1);
    assert_eq!(run("f16").0, 0);
    assert_eq!(run("bf16").0, 0);
}

#[test]
fn a_case_that_cannot_be_read_fails() {
    let keep = |_: &mut Vec<u8>| {};
    let option = changed("gru_clip", "", keep, |text| text.replace("\"clip\"", "\"clamp\""));
    let kind = changed("gru_clip", "", keep, |text| text.replace("\"op\"", "\"jax\""));
    let activations = |text: &str| text.replace("\"hidden_size\"", "\"clip\": 3.0, \"hidden_size\"");
    let attribute = changed("onnx_gru_forward", "", keep, activations);
    let folder = Folder::new("unreadable")
        .copy("gru_clip")
        .write("option.safetensors", &option)
        .write("kind.safetensors", &kind)
        .write("attribute.safetensors", &attribute)
        .write("text.safetensors", b"this is no case");
    let (code, lines) = run(&["--cases", folder.0.to_str().unwrap(), "--device", "flex", "--dtype", "f32"]);
    assert_eq!(code, 1, "{lines:?}");
    assert_eq!(lines.last().unwrap(), "1 passed, 4 failed");
    for (case, part) in [
        ("option", "`clamp`"),
        ("kind", "`jax`"),
        ("attribute", "`clip`"),
        ("text", "not a safetensors file"),
    ] {
        let start = format!("FAILED {case}: cannot be read: ");
        let line = lines.iter().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("no line on {case}: {lines:?}"));
        assert!(line.contains(part), "{line:?} does not say {part:?}");
    }
}

#[test]
fn a_case_that_the_operation_refuses_fails() {
    let secondary = changed(
        "gru_variants_4",
        "",
        |_| {},
        |text| text.replace("\"reset_after\": true", "\"reset_after\": false"),
    );
    let folder = Folder::new("refused").write("refused.safetensors", &secondary);
    let (code, lines) = run_on_flex(&folder.0);
    assert_eq!(code, 1, "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("`secondary_bias` must be absent")), "{lines:?}");
    assert_eq!(lines.last().unwrap(), "0 passed, 1 failed");
}

#[test]
fn without_a_case_there_is_nothing_to_pass() {
    let folder = Folder::new("empty").write("README.md", b"nothing here");
    let (code, lines) = run_on_flex(&folder.0);
    assert_eq!(code, 1, "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("no case found")), "{lines:?}");
    let (code, lines) = run_on_flex(&folder.0.join("nowhere"));
    assert_eq!(code, 1, "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("cannot read") && line.contains("nowhere")), "{lines:?}");
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let folder = Folder::new("device").copy("rnn_bare");
    let path = folder.0.to_str().unwrap();
    let (code, lines) = run(&["--cases", path, "--device", "tpu"]);
    assert_eq!(code, 1, "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("there is no device `tpu`")), "{lines:?}");
    let (code, lines) = run(&["--list-devices", "--device", "tpu"]);
    assert_eq!(code, 1, "{lines:?}");
    let (code, lines) = run(&["--list-devices", "--device", "flex"]);
    assert_eq!((code, lines), (0, vec!["flex".to_string()]));
}

/// Carried elsewhere, with the cases beside it, the runner needs nothing else.
#[test]
fn the_runner_finds_the_cases_beside_it() {
    let folder = Folder::new("beside");
    let runner = folder.0.join("conformance");
    fs::copy(env!("CARGO_BIN_EXE_conformance"), &runner).unwrap();
    fs::create_dir(folder.0.join("cases")).unwrap();
    fs::copy(cases().join("rnn_bare.safetensors"), folder.0.join("cases/rnn_bare.safetensors")).unwrap();
    let output =
        Command::new(&runner).args(["--device", "flex"]).current_dir("/").env_clear().output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert_eq!(text.lines().last(), Some("1 passed, 0 failed"));
}
