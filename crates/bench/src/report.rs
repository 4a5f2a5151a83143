//! Results as rows, in files and on the screen.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::problem::{Cell, Problem, Shape};

/// Rows of one implementation on one device: the format of the files that are written and of those that
/// peers are read from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was timed.
    #[serde(alias = "peer")]
    pub name: String,
    /// On what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The times.
    pub rows: Vec<Row>,
    /// What was timed beside it, and what it was compared with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<Report>,
}

/// The times of one cell with one shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The cell.
    pub cell: Cell,
    /// PyTorch's name of the element type.
    pub dtype: String,
    /// Whether both directions ran.
    #[serde(alias = "bi")]
    pub bidirectional: bool,
    /// Batch rows.
    pub n: usize,
    /// Time steps.
    pub t: usize,
    /// Input features.
    pub i: usize,
    /// Hidden units.
    pub h: usize,
    /// Milliseconds of a forward pass.
    #[serde(alias = "fwd_ms")]
    pub forward_ms: f64,
    /// Milliseconds of forward and backward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_ms: Option<f64>,
    /// What only this program measures.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
}

/// More about a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Details {
    /// The strategy that was asked for.
    pub strategy: String,
    /// Achieved TFLOP/s of the forward pass.
    pub forward_tflops: f64,
    /// Milliseconds in which the host issues a forward pass.
    pub forward_issue_ms: f64,
    /// Slowest less fastest measurement, as a share of the median.
    pub forward_spread: f64,
    /// Achieved TFLOP/s of a training step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_tflops: Option<f64>,
    /// Milliseconds in which the host issues a training step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_issue_ms: Option<f64>,
    /// Slowest less fastest measurement, as a share of the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_spread: Option<f64>,
    /// Peak memory of a training step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_peak_bytes: Option<u64>,
    /// The largest error found, as a share of what is allowed.
    pub error_of_allowed: f64,
}

impl Row {
    /// A row for `problem` with no details.
    pub fn new(problem: &Problem, forward_ms: f64, train_ms: Option<f64>) -> Self {
        let Shape { n, t, i, h } = problem.shape;
        Self {
            cell: problem.cell,
            dtype: problem.precision.long_name().into(),
            bidirectional: problem.bidirectional,
            n,
            t,
            i,
            h,
            forward_ms,
            train_ms,
            details: None,
        }
    }

    /// The sizes.
    pub fn shape(&self) -> Shape {
        Shape { n: self.n, t: self.t, i: self.i, h: self.h }
    }

    /// Whether `other` is of the same cell, element type, directions and sizes.
    pub fn is_of_same_case(&self, other: &Self) -> bool {
        self.shape() == other.shape() && self.is_of_same_kind(other)
    }

    /// Whether `other` is of the same cell, element type and directions.
    pub fn is_of_same_kind(&self, other: &Self) -> bool {
        (self.cell, &self.dtype, self.bidirectional) == (other.cell, &other.dtype, other.bidirectional)
    }

    /// The cell, the element type and the directions, as a heading.
    pub fn kind(&self) -> String {
        let directions = if self.bidirectional { ", both directions" } else { "" };
        format!("{} {}{directions}", self.cell.name(), self.dtype)
    }
}

impl Report {
    /// Reads a file that this program wrote, or a list of rows.
    pub fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let text =
            std::fs::read_to_string(path).map_err(|error| format!("{name} cannot be read: {error}"))?;
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| format!("{name} is not JSON: {error}"))?;
        let report = if value.is_array() {
            serde_json::from_value(value).map(|rows| {
                let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
                Self { name, device: None, rows, peers: Vec::new() }
            })
        } else {
            serde_json::from_value(value)
        };
        report.map_err(|error| format!("{name} is not a report of times: {error}"))
    }

    /// Writes the file that [`read`](Self::read) reads.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).expect("a report is JSON");
        std::fs::write(path, text + "\n")
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))
    }

    /// The row of the same case as `row`, if there is one.
    pub fn row(&self, row: &Row) -> Option<&Row> {
        self.rows.iter().find(|other| other.is_of_same_case(row))
    }
}

/// Ratios peer time / our time of one kind of run.
#[derive(Clone, Debug, Default)]
pub struct Ratios(Vec<f64>);

impl Ratios {
    /// Adds the ratio of two times, if both are there, and returns it.
    pub fn add(&mut self, peer: Option<f64>, ours: Option<f64>) -> Option<f64> {
        let ratio = peer? / ours?;
        self.0.push(ratio);
        Some(ratio)
    }

    /// The geometric mean with the smallest ratio, or that there is none.
    pub fn summary(&self) -> String {
        match self.0.len() {
            0 => "none in common".into(),
            count => {
                let mean = (self.0.iter().map(|ratio| ratio.ln()).sum::<f64>() / count as f64).exp();
                let least = self.0.iter().copied().fold(f64::MAX, f64::min);
                format!("{mean:.2} in the geometric mean of {count}, {least:.2} at the least")
            }
        }
    }
}

/// Time with what follows from it, as in `0.123 ms   0.96 µs/step   1.02 TFLOP/s`.
pub fn format_time(milliseconds: f64, steps: usize, flops: f64) -> String {
    format!(
        "{milliseconds:>9.3} ms {:>8.2} µs/step {:>8.3} TFLOP/s",
        milliseconds * 1e3 / steps as f64,
        tflops(milliseconds, flops),
    )
}

/// Floating-point operations per picosecond.
pub fn tflops(milliseconds: f64, flops: f64) -> f64 {
    flops / (milliseconds * 1e9)
}

/// A ratio, as in `1.85x`, or a dash.
pub fn format_ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}x"))
}

/// Bytes in the unit that suits them.
pub fn format_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB"] {
        if value < 1024.0 {
            return format!("{value:.1} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} GiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Precision;

    fn row(forward_ms: f64) -> Row {
        let shape = Shape { n: 16, t: 128, i: 64, h: 128 };
        let problem = Problem::new(Cell::Gru, shape, false, Precision::F32);
        Row::new(&problem, forward_ms, Some(2.0))
    }

    #[test]
    fn a_report_survives_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("report.json");
        let details = Details {
            strategy: "auto".into(),
            forward_tflops: 1.0,
            forward_issue_ms: 0.5,
            forward_spread: 0.01,
            train_tflops: Some(2.0),
            train_issue_ms: Some(0.5),
            train_spread: None,
            train_peak_bytes: Some(1 << 20),
            error_of_allowed: 0.25,
        };
        let peer = Report { name: "a peer".into(), device: None, rows: vec![row(2.0)], peers: Vec::new() };
        let report = Report {
            name: "burn-rnn".into(),
            device: Some("flex".into()),
            rows: vec![Row { details: Some(details), ..row(1.0) }],
            peers: vec![peer],
        };
        report.write(&path).expect("written");
        assert_eq!(Report::read(&path).expect("read"), report);
    }

    #[test]
    fn both_formats_of_peers_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cudnn.json");
        let write = |text: &str| std::fs::write(&path, text).expect("written");

        write(
            r#"{"peer": "cuDNN", "rows": [{"cell": "gru", "dtype": "float32", "bidirectional": false,
                "n": 16, "t": 128, "i": 64, "h": 128, "forward_ms": 3.0, "train_ms": 2.0}]}"#,
        );
        let report = Report::read(&path).expect("read");
        assert_eq!((report.name.as_str(), report.row(&row(1.0))), ("cuDNN", Some(&row(3.0))));

        write(
            r#"[{"cell": "gru", "dtype": "float32", "n": 16, "t": 128, "i": 64, "h": 128, "bi": false,
                 "fwd_ms": 4.0, "train_ms": 2.0}]"#,
        );
        let report = Report::read(&path).expect("read");
        assert_eq!((report.name.as_str(), report.row(&row(1.0))), ("cudnn", Some(&row(4.0))));
    }

    #[test]
    fn an_unreadable_file_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("report.json");
        let error = || Report::read(&path).unwrap_err();
        assert!(error().contains("report.json cannot be read"));
        std::fs::write(&path, "x").expect("written");
        assert!(error().contains("report.json is not JSON"));
        std::fs::write(&path, "{}").expect("written");
        assert!(error().contains("report.json is not a report of times: missing field"), "{}", error());
    }

    #[test]
    fn ratios_are_summed_up_by_their_geometric_mean() {
        let mut ratios = Ratios::default();
        assert_eq!(ratios.summary(), "none in common");
        assert_eq!(ratios.add(Some(4.0), Some(1.0)), Some(4.0));
        assert_eq!(ratios.add(Some(1.0), Some(1.0)), Some(1.0));
        assert_eq!(ratios.add(None, Some(1.0)), None);
        assert_eq!(ratios.summary(), "2.00 in the geometric mean of 2, 1.00 at the least");
    }

    #[test]
    fn times_carry_what_follows_from_them() {
        // 128 steps in 0.128 ms; 2e9 operations in a millisecond are 2 TFLOP/s.
        assert!(format_time(0.128, 128, 1.0).contains("1.00 µs/step"));
        assert!(format_time(1.0, 128, 2e9).contains("2.000 TFLOP/s"));
        assert_eq!(format_bytes(3 << 20), "3.0 MiB");
        assert_eq!(format_bytes(5 << 30), "5.0 GiB");
    }
}
