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

/// The text with the index of the `which`-th element that `kind` of pointer is made to point to changed.
fn with_index(text: &str, kind: &str, which: usize, change: &str) -> String {
    let Some((at, _)) = text.match_indices(&format!("\n{kind} * const ")).nth(which) else {
        return text.into();
    };
    let (before, line) = text.split_at(at + 1);
    let (line, after) = line.split_once('\n').unwrap_or((line, ""));
    format!("{before}{}{change}];\n{after}", line.trim_end_matches("];"))
}

#[test]
fn an_index_past_a_buffer() {
    // A wrong element, one past the end, one before the start, which is far off among 32-bit numbers.
    for (change, expected) in
        [(" + 1", ""), (" + 100000", "leaves buffer"), (" - 100000", "no memory of its own")]
    {
        let error = noticed("walk_forward", move |text| with_index(text, "device float", 0, change));
        assert!(error.contains(expected), "index{change}: {error}");
    }
}

#[test]
fn an_index_past_threadgroup_memory() {
    for kernel in ["walk_forward", "walk_backward"] {
        let error = noticed(kernel, |text| with_index(text, "threadgroup float", 0, " + 1"));
        println!("{kernel}: {error}");
        let error = noticed(kernel, |text| with_index(text, "threadgroup float", 0, " + 100000"));
        assert!(error.contains("behaviour is undefined"), "{kernel}: {error}");
    }
}

#[test]
fn a_wrong_operator() {
    for kernel in ["walk_forward", "walk_backward"] {
        for which in [0, 1] {
            let error = noticed(kernel, move |text| replace_nth(text, " - ", which, " + "));
            println!("{kernel}: {error}");
        }
    }
    let error = noticed("entered", |text| replace_nth(text, " * v", 0, " + v"));
    println!("entered: {error}");
}

#[test]
fn a_wrong_address_space() {
    let error = noticed("walk_forward", |text| {
        replace_nth(text, "\nthreadgroup float * const ", 0, "\ndevice float * const ")
    });
    // Named as OpenCL names them.
    assert!(error.contains("'__global float") && error.contains("'__local float"), "{error}");
}

#[test]
fn a_barrier_that_some_threads_pass_by() {
    let error = noticed("walk_forward", |text| {
        let start = text.find("thread_index_in_threadgroup_v").expect("a thread's index");
        let name = text[start..].split(' ').next().expect("a name");
        before_barrier(text, &format!("if ({name} < 3)"))
    });
    assert!(error.contains("different barriers"), "{error}");
}

#[test]
fn a_loop_without_an_end() {
    let error = noticed("walk_forward", |text| {
        before_barrier(text, "{ volatile uint32_t again = 1; while (again == 1) {} }")
    });
    assert!(error.contains("does not end"), "{error}");
}
