//! What Metal does not allow, and what is known to go wrong there.

use std::sync::{Arc, Mutex, OnceLock};

use cube_rnn::{Sizes, Strategy};
use cubecl::ir::FloatKind;
use rnn_msl::{
    apple,
    kernels::{Problem, problems},
    server::{Device, Engine, Launch},
    text::{Form, Text, through_naga},
};

/// Kernels of each way to lay out a problem, in both forms: of all that `cargo xtask msl` writes, those in f32 with
/// every size, some in 16 bits, and those with the most inputs in both directions.
fn kernels() -> &'static [(String, Arc<Text>)] {
    static KERNELS: OnceLock<Vec<(String, Arc<Text>)>> = OnceLock::new();
    KERNELS.get_or_init(|| {
        let chosen = |problem: &Problem| match problem.name.split('.').nth(4) {
            None => problem.dtype == FloatKind::F32 || problem.sizes.hidden == 33,
            Some(variant) => ["bidirectional", "mask-steps"].contains(&variant),
        };
        let problems: Vec<Problem> = problems().into_iter().filter(chosen).collect();
        compile(&problems, &Form::ALL)
    })
}

/// The kernels of problems, with the problem's name, compiled on two threads.
fn compile(problems: &[Problem], forms: &[Form]) -> Vec<(String, Arc<Text>)> {
    let compile = |problems: &[Problem]| {
        let device = Device::new(forms, None);
        let mut kernels = Vec::new();
        for problem in problems {
            problem.launch(&device.client);
            let all = device.kernels();
            if let Some(failure) = device.failure() {
                panic!("{}: {failure}", problem.name);
            }
            let new: Vec<_> =
                all[kernels.len()..].iter().map(|text| (problem.name.clone(), text.clone())).collect();
            kernels.extend(new);
        }
        kernels
    };
    let (first, second) = problems.split_at(problems.len() / 2);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| compile(second));
        let mut kernels = compile(first);
        kernels.extend(second.join().expect("compiled"));
        kernels
    })
}

/// What is wrong with a text, with the name of each kernel and form that it is wrong with.
fn wrong(found: impl Fn(Form, &Text, &str) -> Option<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (problem, text) in kernels() {
        for form in Form::ALL {
            if let Some(found) = text.form(form).and_then(|source| found(form, text, source)) {
                wrong.push(format!("{problem}, {}, {form:?}: {found}", text.name));
            }
        }
    }
    wrong
}

/// Numbers between `before` and `after` wherever both are in a text.
fn numbers(source: &str, before: &str, after: char) -> Vec<usize> {
    let rests = source.match_indices(before).map(|(at, _)| &source[at + before.len()..]);
    rests.filter_map(|rest| rest.split(after).next()?.trim().parse().ok()).collect()
}

#[test]
fn threadgroups_fit() {
    let wrong = wrong(|form, text, source| {
        let threads: u32 = text.threads.iter().product();
        if threads > apple::THREADS {
            return Some(format!("{threads} threads"));
        }
        // Told how many threads there are, Apple's compiler gives none more registers than leave room for all.
        let promised = numbers(source, "[[max_total_threads_per_threadgroup(", ')');
        if promised.len() != 1 || promised[0] < threads as usize || promised[0] > apple::THREADS as usize {
            return Some(format!("{threads} threads, {promised:?} promised"));
        }
        let declared: usize = match form {
            Form::Msl => source
                .lines()
                .filter(|line| line.contains(" threadgroup char "))
                .flat_map(|line| numbers(line, "[", ']'))
                .sum(),
            Form::Naga => text.threadgroup_memory,
        };
        (declared > apple::THREADGROUP_MEMORY || text.threadgroup_memory != declared)
            .then(|| format!("{declared} bytes of threadgroup memory, {} reckoned", text.threadgroup_memory))
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let most = kernels().iter().map(|(_, text)| text.threadgroup_memory).max();
    assert!(
        most > Some(apple::THREADGROUP_MEMORY / 2),
        "{most:?} bytes at the most: no kernel comes near the limit"
    );
}

#[test]
fn buffers_are_few() {
    let wrong = wrong(|_, text, source| {
        // One more for the info.
        let bound = numbers(source, "[[buffer(", ')').into_iter().max()?;
        let buffers = text.buffers + 1;
        (buffers > apple::BUFFERS || bound >= apple::BUFFERS)
            .then(|| format!("{buffers} buffers, up to {bound}"))
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn there_are_no_doubles() {
    let wrong = wrong(|_, text, source| {
        let words = |source: &str, wanted: &str| {
            source.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|word| word == wanted)
        };
        let double = words(source, "double") || text.wgsl.as_deref().is_some_and(|wgsl| words(wgsl, "f64"));
        double.then(|| "64-bit floats".into())
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether CubeCL's MSL has a loop that looks at a value of another threadgroup again and again: one with an atomic load
/// that does not just count up to a bound.
fn waits(msl: &str) -> bool {
    let (start, end) = ("while([&]{", "}()) {");
    assert_eq!(msl.matches("while").count(), msl.matches(start).count(), "a loop of another form:\n{msl}");
    msl.match_indices(start).any(|(at, _)| {
        let (condition, rest) = msl[at + start.len()..].split_once(end).expect("a loop has a condition");
        let mut depth = 1;
        let closes = rest.find(|letter| {
            depth += (letter == '{') as i32 - (letter == '}') as i32;
            depth == 0
        });
        let body = &rest[..closes.expect("a loop has an end")];
        let counts = condition.matches("bool const").count() == 1 && condition.contains(" < ");
        body.contains("atomic_load") && !counts
    })
}

#[test]
fn no_threadgroup_waits_for_another() {
    let wrong = wrong(|form, _, source| {
        // A value that is handed on is stored and loaded at once; nothing else is done with atomics.
        let allowed = ["atomic_load_explicit", "atomic_store_explicit", "atomic_exchange_explicit"];
        let mut used = source
            .match_indices("atomic_")
            .map(|(at, _)| source[at..].split('(').next().unwrap_or_default())
            .filter(|name| name.ends_with("_explicit"));
        let other = used.find(|name| !allowed.contains(name)).map(str::to_string);
        other.or_else(|| (form == Form::Msl && waits(source)).then(|| "looks again and again".into()))
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Problems of one size with another strategy.
fn with_strategy(strategy: Strategy, sizes: &[(usize, usize)]) -> Vec<Problem> {
    let plain: Vec<Problem> =
        problems().into_iter().filter(|problem| problem.name.ends_with(".cube.f32.n3h5")).collect();
    assert_eq!(plain.len(), 3, "a problem of each cell");
    sizes
        .iter()
        .flat_map(|&(batch, hidden)| {
            plain.iter().map(move |problem| Problem {
                name: format!("{} as {strategy:?} n{batch}h{hidden}", problem.name),
                sizes: Sizes { steps: 3, batch, hidden },
                strategy,
                ..problem.clone()
            })
        })
        .collect()
}

#[test]
fn left_to_itself_it_never_waits_either() {
    let sizes = [(1, 1), (3, 64), (1, 96), (90, 160), (1, 192), (2, 257), (1, 300)];
    for (problem, text) in compile(&with_strategy(Strategy::Auto, &sizes), &[Form::Msl]) {
        assert!(!waits(&text.msl), "{problem} waits");
    }
}

#[test]
fn grid_is_steps_where_it_takes_several_threadgroups() {
    let grid_waits = |sizes| {
        let kernels = compile(&with_strategy(Strategy::Grid, &[sizes]), &[Form::Msl]);
        kernels.iter().any(|(_, text)| waits(&text.msl))
    };
    assert!(!grid_waits((3, 300)));
    // One threadgroup has only itself to wait for. It shows that waiting would be noticed.
    assert!(grid_waits((3, 5)));
}

/// Counts launches of the walk.
struct Count(Arc<Mutex<usize>>);

impl Engine for Count {
    fn launch(&mut self, launch: Launch<'_>) -> Result<(), String> {
        *self.0.lock().map_err(|error| error.to_string())? +=
            launch.text.name.contains("walk_forward") as usize;
        Ok(())
    }
}

#[test]
fn long_sequences_run_in_short_launches() {
    for (steps, hidden, at_least) in [(6_000, 256, 3), (9_000, 5, 3), (4_096, 5, 1)] {
        let count = Arc::new(Mutex::new(0));
        let device = Device::new(&[], Some(Box::new(Count(count.clone()))));
        let mut problem = with_strategy(Strategy::Cube, &[(1, hidden)]).swap_remove(0);
        problem.sizes.steps = steps;
        problem.training = false;
        problem.launch(&device.client);
        assert_eq!(device.failure(), None);
        let launches = *count.lock().expect("no panic");
        // Multiply-adds of a launch, all in one threadgroup.
        let work = steps * 3 * hidden * hidden / launches.max(1);
        assert!(
            launches >= at_least && work <= 500_000_000,
            "T{steps} H{hidden}: {launches} launches of {work}"
        );
    }
}

#[test]
fn workgroup_arrays_are_small_and_of_one_dimension() {
    let mut seen = 0;
    for (problem, text) in kernels() {
        let Some(wgsl) = &text.wgsl else { continue };
        for line in wgsl.lines().filter(|line| line.contains("var<workgroup>")) {
            seen += 1;
            assert_eq!(line.matches("array<").count(), 1, "{problem}: {line}");
        }
        // What takes Apple's compiler minutes is setting each element to zero, which naga is told to leave out.
        let naga = text.naga.as_deref().expect("there is WGSL");
        let checked = through_naga(wgsl, text.buffers, true).expect("valid");
        // That takes a barrier more.
        let barriers = |text: &str, barrier| text.matches(barrier).count();
        let wanted = barriers(wgsl, "workgroupBarrier()");
        assert_eq!(barriers(naga, "threadgroup_barrier("), wanted, "{problem}: set to zero");
        let zeroed = wanted + wgsl.contains("var<workgroup>") as usize;
        assert_eq!(
            barriers(&checked, "threadgroup_barrier("),
            zeroed,
            "{problem}: set to zero in another way"
        );
    }
    assert!(seen > 0);
}

#[test]
fn loops_pay_no_counter() {
    let mut loops = 0;
    for (problem, text) in kernels() {
        let (Some(wgsl), Some(naga)) = (&text.wgsl, &text.naga) else { continue };
        assert!(!naga.contains("loop_bound"), "{problem}, {}", text.name);
        let checked = through_naga(wgsl, text.buffers, true).expect("valid");
        assert_eq!(checked.contains("loop_bound"), wgsl.contains("loop {"), "{problem}, {}", text.name);
        loops += wgsl.matches("loop {").count();
    }
    assert!(loops > 0);
}
