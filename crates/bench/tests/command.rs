//! The executable as it is used.

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench")).args(arguments).output().expect("the executable runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn times_are_printed_written_and_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let peer = file("peer.json");
    std::fs::write(
        &peer,
        r#"{"peer": "a peer", "rows": [{"cell": "gru", "dtype": "float32", "bidirectional": false, "n": 2,
            "t": 5, "i": 3, "h": 4, "forward_ms": 100.0, "train_ms": 200.0}]}"#,
    )
    .expect("written");
    let written = file("report.json");
    let output = bench(&[
        "--device",
        "flex",
        "--shape",
        "2,5,3,4",
        "--threads",
        "1",
        "--peer",
        "burn-nn",
        "--peer",
        &peer,
        "--json",
        &written,
    ]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    for expected in [
        "device flex",
        "gru float32 N2 T5 I3 H4",
        "burn-rnn  forward ",
        "burn-rnn  training",
        "burn-nn   training",
        "µs/step",
        "TFLOP/s",
        "peak memory",
        "ratio to a peer: forward ",
        "ratio to burn-nn\n  forward  ",
        "in the geometric mean of 1",
    ] {
        assert!(printed.contains(expected), "no `{expected}` in\n{printed}");
    }

    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&written).expect("read")).expect("JSON");
    let row = &report["rows"][0];
    assert_eq!((row["cell"].as_str(), row["dtype"].as_str()), (Some("gru"), Some("float32")));
    assert_eq!((row["n"].as_u64(), row["bidirectional"].as_bool()), (Some(2), Some(false)));
    assert!(row["train_ms"].as_f64() > row["forward_ms"].as_f64());
    assert_eq!(report["peers"].as_array().map(Vec::len), Some(2));

    let picture = file("times.svg");
    let output = bench(&["plot", &written, "--out", &picture]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(std::fs::read_to_string(&picture).expect("read").contains("N2 T5 I3 H4"));
}

#[test]
fn a_step_is_timed_alone() {
    let output = bench(&["--device", "flex", "--step", "--cell", "rnn", "--shape", "1,1,3,4"]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    assert!(printed.contains("rnn float32 N1 T1 I3 H4"), "{printed}");
    assert!(!printed.contains("training"), "{printed}");
}

#[test]
fn what_cannot_be_timed_is_said_in_one_line() {
    for (arguments, expected) in [
        (vec!["--device", "toaster", "--shape", "1,1,1,1"], "there is no device `toaster`"),
        (vec!["--device", "flex"], "nothing to time"),
        (vec!["--device", "flex", "--shape", "1,1,1,1", "--peer", "no.json"], "no.json cannot be read"),
        (vec!["--device", "flex", "--shape", "1,1,1,1", "--strategy", "guess"], "strategy `guess`"),
    ] {
        let output = bench(&arguments);
        assert!(!output.status.success(), "{arguments:?}");
        let error = text(&output.stderr);
        assert!(error.starts_with("bench: ") && error.contains(expected), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
