//! Deliberate errors in the kernels' text: each must be noticed.

use std::sync::{Arc, Mutex};

use cube_rnn::Strategy;

use crate::support::{Way, case, run};

/// A GRU in two phases, which has the most barriers.
const CASE: &str = "gru_variants_0";

const BARRIER: &str = "threadgroup_barrier(mem_flags::mem_threadgroup);";

/// Runs the case with the text of one kernel changed.
fn with_edit(kernel: &'static str, edit: impl Fn(&str) -> String + Send + 'static) -> Result<(), String> {
    let way = Way::new(Strategy::Cube);
    let edited = Arc::new(Mutex::new(false));
    let done = edited.clone();
    let engine = way.stand_in().with_edit(move |text| {
        if !text.contains(&format!("void {kernel}")) {
            return text.into();
        }
        let after = edit(text);
        *done.lock().expect("no panic") |= after != text;
        after
    });
    let result = run(&case(CASE), way, engine);
    assert!(*edited.lock().expect("no panic"), "the edit of {kernel} changes nothing");
    result
}

/// What an edit is noticed by.
fn noticed(kernel: &'static str, edit: impl Fn(&str) -> String + Send + 'static) -> String {
    with_edit(kernel, edit).err().unwrap_or_else(|| panic!("an error in {kernel} is not noticed"))
}

/// The text with the `which`-th `old` replaced.
fn replace_nth(text: &str, old: &str, which: usize, new: &str) -> String {
    match text.match_indices(old).nth(which) {
        Some((at, _)) => format!("{}{new}{}", &text[..at], &text[at + old.len()..]),
        None => text.into(),
    }
}

/// The text with a line put before the first barrier.
fn before_barrier(text: &str, line: &str) -> String {
    replace_nth(text, BARRIER, 0, &format!("{line}\n{BARRIER}"))
}

/// Takes out each barrier in turn.
fn each_barrier_is_missed(kernel: &'static str) {
    // A comment changes no result, and counts.
    let barriers = Arc::new(Mutex::new(0));
    let count = barriers.clone();
    let unchanged = with_edit(kernel, move |text| {
        *count.lock().expect("no panic") = text.matches(BARRIER).count();
        format!("// The same.\n{text}")
    });
    assert_eq!(unchanged, Ok(()));
    let barriers = *barriers.lock().expect("no panic");
    assert!(barriers >= 4, "{barriers} barriers");
    for which in 0..barriers {
        let error = noticed(kernel, move |text| replace_nth(text, BARRIER, which, ""));
        println!("barrier {which} of {kernel}: {error}");
    }
}

#[test]
fn missing_barriers_of_the_forward_pass() {
    each_barrier_is_missed("walk_forward");
}

#[test]
fn missing_barriers_of_the_backward_pass() {
    each_barrier_is_missed("walk_backward");
}
