//! Times every shape that was asked for.

use burn::tensor::{Device, Tensor};

use crate::{
    burn_nn::BurnNn,
    device, memory,
    options::{Peer, TimingOptions},
    ours::Ours,
    problem::{Precision, Problem, Shape},
    reference::{self, Reference},
    report::{Details, Ratios, Report, Row, format_bytes, format_ratio, format_time, tflops},
    strategy,
    subject::{ForwardResult, Subject},
    timing::{self, Timing},
    verify,
};

/// What is compared with, with the ratios so far.
struct Compared {
    report: Report,
    forward: Ratios,
    train: Ratios,
}

impl Compared {
    fn new(report: Report) -> Self {
        Self { report, forward: Ratios::default(), train: Ratios::default() }
    }
}

/// Times what `options` asks for and prints it. An error is the first thing that cannot be timed at all, or the
/// number of results that were wrong.
pub fn run(options: &TimingOptions) -> Result<(), String> {
    let shapes = options.shapes()?;
    let name = options.device.as_deref().expect("clap requires it");
    if let Some(threads) = options.threads {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads.into())
            .build_global()
            .map_err(|error| format!("the threads cannot be started: {error}"))?;
    }
    let mut files = Vec::new();
    for peer in &options.peer {
        if let Peer::File(path) = peer {
            files.push(Compared::new(Report::read(path)?));
        }
    }
    strategy::force(&options.strategy)?;

    let opened = device::open(name)?;
    let burn_nn = options.peer.contains(&Peer::BurnNn);
    let layers_ready = match (burn_nn, options.dtype) {
        (false, _) | (_, Precision::F32) => Ok(()),
        (true, dtype) => device::set_default(&opened.device, dtype),
    };
    check_precision(options, &opened.device)?;

    println!("device {}", opened.name);
    let session = Session { options, device: &opened.device };
    let mut ours = Report {
        name: format!("burn-rnn {}", env!("CARGO_PKG_VERSION")),
        device: Some(opened.name.clone()),
        rows: Vec::new(),
        peers: Vec::new(),
    };
    let mut layer = burn_nn.then(|| {
        Compared::new(Report {
            name: "burn-nn".into(),
            device: Some(opened.name.clone()),
            rows: Vec::new(),
            peers: Vec::new(),
        })
    });
    let mut failures = 0;
    for &shape in &shapes {
        let problem = Problem::new(options.cell, shape, options.bidirectional, options.dtype);
        let reference = reference::run(&problem, !options.step);
        println!(
            "\n{} {}{} {shape}",
            options.cell.name(),
            options.dtype.long_name(),
            if options.bidirectional { " both directions" } else { "" },
        );
        let timed = match options.step {
            true => session.time_step(&problem, &reference),
            false => session.time(&problem, &reference, &Ours::new(&problem, &opened.device)),
        };
        let row = match timed {
            Ok(row) => row,
            Err(error) => {
                failures += 1;
                println!("  no time: {error}");
                continue;
            }
        };
        print_row("burn-rnn", &problem, &row);
        if let Some(layer) = layer.as_mut().filter(|_| !options.step) {
            let timed = layers_ready
                .clone()
                .and_then(|()| session.time(&problem, &reference, &BurnNn::new(&problem, &opened.device)));
            match timed {
                Ok(peer) => {
                    print_row("burn-nn", &problem, &peer);
                    layer.report.rows.push(peer);
                }
                Err(error) => println!("  burn-nn        no time: {error}"),
            }
        }
        for compared in layer.iter_mut().chain(&mut files) {
            print_ratios(compared, &row);
        }
        ours.rows.push(row);
    }

    println!();
    for compared in layer.iter().chain(&files) {
        println!("ratio to {}", compared.report.name);
        println!("  forward  {}", compared.forward.summary());
        println!("  training {}", compared.train.summary());
    }
    if let Some(path) = &options.json {
        ours.peers = layer.into_iter().chain(files).map(|compared| compared.report).collect();
        ours.write(path)?;
    }
    match failures {
        0 => Ok(()),
        1 => Err("one shape has no time".into()),
        count => Err(format!("{count} shapes have no time")),
    }
}

/// Asks the operations themselves whether the device has the element type, with the smallest problem.
fn check_precision(options: &TimingOptions, device: &Device) -> Result<(), String> {
    let smallest = Shape { n: 1, t: 1, i: 1, h: 1 };
    let problem = Problem::new(options.cell, smallest, false, options.dtype);
    Ours::new(&problem, device).forward().map(drop)
}

/// What all shapes have in common.
struct Session<'a> {
    options: &'a TimingOptions,
    device: &'a Device,
}

impl Session<'_> {
    /// Checks and times forward and training. The result is checked first, and that of the last timed call again.
    fn time(&self, problem: &Problem, reference: &Reference, subject: &dyn Subject) -> Result<Row, String> {
        let precision = problem.precision;
        let forward_result = |run| verify::forward(subject.forward_result(run), reference, precision);
        let train_result = |run| verify::train(subject.train_result(run), reference, precision);
        let mut error = forward_result(subject.forward()?)?.0;
        error = error.max(train_result(subject.train()?)?.0);

        let (forward, last) = timing::time(self.device, || subject.forward())?;
        error = error.max(forward_result(last)?.0);
        let (train, last) = timing::time(self.device, || subject.train())?;
        error = error.max(train_result(last)?.0);
        let peak = memory::peak(self.device, problem.bytes(), || subject.train())?;

        let mut row = Row::new(problem, forward.milliseconds, Some(train.milliseconds));
        row.details = Some(Details {
            train_tflops: Some(tflops(train.milliseconds, problem.train_flops())),
            train_issue_ms: Some(train.issue_milliseconds),
            train_spread: Some(train.spread),
            train_peak_bytes: Some(peak),
            ..self.details(problem, forward, error)
        });
        warn_unsettled("forward", forward);
        warn_unsettled("training", train);
        Ok(row)
    }

    /// Times a step that takes the state of the step before.
    fn time_step(&self, problem: &Problem, reference: &Reference) -> Result<Row, String> {
        let subject = Ours::new(problem, self.device);
        let first = || -> Result<ForwardResult, String> {
            let result = subject.step(None)?;
            Ok(ForwardResult { output: result.output, final_state: Some(result.final_state) })
        };
        let mut error = verify::forward(first()?, reference, problem.precision)?.0;
        let mut state: Option<Tensor<2>> = None;
        let (timing, _) = timing::time(self.device, || {
            let result = subject.step(state.take())?;
            state = Some(result.final_state);
            Ok(result.output)
        })?;
        error = error.max(verify::forward(first()?, reference, problem.precision)?.0);
        let mut row = Row::new(problem, timing.milliseconds, None);
        row.details = Some(self.details(problem, timing, error));
        warn_unsettled("step", timing);
        Ok(row)
    }

    fn details(&self, problem: &Problem, forward: Timing, error: f64) -> Details {
        Details {
            strategy: self.options.strategy.clone(),
            forward_tflops: tflops(forward.milliseconds, problem.forward_flops()),
            forward_issue_ms: forward.issue_milliseconds,
            forward_spread: forward.spread,
            train_tflops: None,
            train_issue_ms: None,
            train_spread: None,
            train_peak_bytes: None,
            error_of_allowed: error,
        }
    }
}

fn warn_unsettled(what: &str, timing: Timing) {
    if !timing.settled {
        println!("  note: the times of {what} did not settle before they were measured");
    }
}

fn print_row(name: &str, problem: &Problem, row: &Row) {
    let steps = problem.shape.t;
    println!("  {name:<9} forward  {}", format_time(row.forward_ms, steps, problem.forward_flops()));
    if let Some(train_ms) = row.train_ms {
        let peak = row.details.as_ref().and_then(|details| details.train_peak_bytes);
        println!(
            "  {name:<9} training {}  peak memory {}",
            format_time(train_ms, steps, problem.train_flops()),
            peak.map_or_else(|| "-".into(), format_bytes),
        );
    }
}

fn print_ratios(compared: &mut Compared, row: &Row) {
    let Some(peer) = compared.report.row(row) else { return };
    let forward = compared.forward.add(Some(peer.forward_ms), Some(row.forward_ms));
    let train = compared.train.add(peer.train_ms, row.train_ms);
    println!(
        "  ratio to {}: forward {} ({:.3} ms), training {}{}",
        compared.report.name,
        format_ratio(forward),
        peer.forward_ms,
        format_ratio(train),
        peer.train_ms.map_or_else(String::new, |train_ms| format!(" ({train_ms:.3} ms)")),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        options::CommandLine,
        problem::Cell,
        subject::{Run, TrainResult},
    };
    use clap::Parser;

    const SHAPE: Shape = Shape { n: 2, t: 3, i: 4, h: 5 };

    fn session<T>(test: impl FnOnce(Session<'_>) -> T) -> T {
        let command_line = CommandLine::parse_from(["bench", "--device", "flex"]);
        test(Session { options: &command_line.timing, device: &Device::flex() })
    }

    #[test]
    fn both_implementations_are_right_for_either_cell_and_direction() {
        for cell in [Cell::Gru, Cell::Rnn] {
            for bidirectional in [false, true] {
                let problem = Problem::new(cell, SHAPE, bidirectional, Precision::F32);
                let reference = reference::run(&problem, true);
                let device = Device::flex();
                let subjects: [Box<dyn Subject>; 2] =
                    [Box::new(Ours::new(&problem, &device)), Box::new(BurnNn::new(&problem, &device))];
                for subject in subjects {
                    let run = subject.forward().expect("runs");
                    verify::forward(subject.forward_result(run), &reference, Precision::F32).expect("right");
                    let run = subject.train().expect("runs");
                    verify::train(subject.train_result(run), &reference, Precision::F32).expect("right");
                }
            }
        }
    }

    /// Our operations with one gradient too large.
    struct Wrong(Ours);

    impl Subject for Wrong {
        fn forward(&self) -> Result<Run, String> {
            self.0.forward()
        }

        fn train(&self) -> Result<Run, String> {
            self.0.train()
        }

        fn forward_result(&self, run: Run) -> ForwardResult {
            self.0.forward_result(run)
        }

        fn train_result(&self, run: Run) -> TrainResult {
            let result = self.0.train_result(run);
            TrainResult { bias: result.bias.map(|bias| bias * 1.01), ..result }
        }
    }

    #[test]
    fn a_wrong_result_has_no_time() {
        let problem = Problem::new(Cell::Gru, SHAPE, false, Precision::F32);
        let reference = reference::run(&problem, true);
        let wrong = Wrong(Ours::new(&problem, &Device::flex()));
        let error = session(|session| session.time(&problem, &reference, &wrong)).unwrap_err();
        assert!(error.starts_with("gradient of the bias: element"), "{error}");
    }

    #[test]
    fn a_right_result_has_a_row_with_all_figures() {
        let problem = Problem::new(Cell::Gru, SHAPE, false, Precision::F32);
        let reference = reference::run(&problem, true);
        let ours = Ours::new(&problem, &Device::flex());
        let row = session(|session| session.time(&problem, &reference, &ours)).expect("right");
        let details = row.details.expect("ours has details");
        assert!(row.forward_ms > 0.0 && row.train_ms.expect("timed") > row.forward_ms);
        assert!(details.forward_tflops > 0.0 && details.error_of_allowed < 1.0);
        assert!(details.train_peak_bytes.expect("measured") > problem.bytes());
    }
}
