//! Writes times as Markdown tables, beside those of the peers in the same files.

use std::fmt::Write;

use crate::{
    options::TableOptions,
    report::{Report, Row, format_ratio},
};

/// Reads the files and writes the tables.
pub fn run(options: &TableOptions) -> Result<(), String> {
    let reports: Vec<Report> =
        options.files.iter().map(|file| Report::read(file)).collect::<Result<_, _>>()?;
    let tables = write(&reports);
    match &options.out {
        None => print!("{tables}"),
        Some(out) => {
            std::fs::write(out, tables)
                .map_err(|error| format!("{} cannot be written: {error}", out.display()))?;
            println!("{} written", out.display());
        }
    }
    Ok(())
}

/// A table for each cell, element type and direction of each report: milliseconds, and each peer's with its ratio to ours.
fn write(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        let mut kinds: Vec<&Row> = Vec::new();
        for row in &report.rows {
            if !kinds.iter().any(|kind| kind.is_of_same_kind(row)) {
                kinds.push(row);
            }
        }
        for kind in kinds {
            table(&mut text, report, kind).expect("a string takes all");
        }
    }
    text
}

fn table(text: &mut String, report: &Report, kind: &Row) -> std::fmt::Result {
    if !text.is_empty() {
        writeln!(text)?;
    }
    let device = report.device.as_deref().map_or(String::new(), |device| format!(" on {device}"));
    writeln!(text, "{}{device}: {}", report.name, kind.kind())?;
    writeln!(text)?;
    write!(text, "| N T I H |")?;
    for run in ["forward", "training"] {
        write!(text, " {run} |")?;
        for peer in &report.peers {
            write!(text, " {} | ratio |", peer.name)?;
        }
    }
    writeln!(text)?;
    writeln!(text, "|{}", " --- |".repeat(1 + 2 * (1 + 2 * report.peers.len())))?;
    for row in report.rows.iter().filter(|row| row.is_of_same_kind(kind)) {
        write!(text, "| {} {} {} {} |", row.n, row.t, row.i, row.h)?;
        let times: [fn(&Row) -> Option<f64>; 2] = [|row| Some(row.forward_ms), |row| row.train_ms];
        for time in times {
            write!(text, " {} |", milliseconds(time(row)))?;
            for peer in &report.peers {
                let theirs = peer.row(row).and_then(time);
                let ratio = theirs.zip(time(row)).map(|(theirs, ours)| theirs / ours);
                write!(text, " {} | {} |", milliseconds(theirs), format_ratio(ratio))?;
            }
        }
        writeln!(text)?;
    }
    Ok(())
}

fn milliseconds(time: Option<f64>) -> String {
    time.map_or_else(|| "-".into(), |time| format!("{time:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Cell, Precision, Problem, Shape};

    fn row(cell: Cell, n: usize, forward_ms: f64, train_ms: Option<f64>) -> Row {
        let problem = Problem::new(cell, Shape { n, t: 5, i: 3, h: 4 }, false, Precision::F32);
        Row::new(&problem, forward_ms, train_ms)
    }

    #[test]
    fn each_kind_has_a_table_with_its_peers() {
        let peer = Report {
            name: "a peer".into(),
            device: None,
            rows: vec![row(Cell::Gru, 1, 3.0, None)],
            peers: Vec::new(),
        };
        let ours = Report {
            name: "burn-rnn".into(),
            device: Some("metal".into()),
            rows: vec![
                row(Cell::Gru, 1, 1.0, Some(2.0)),
                row(Cell::Gru, 2, 1.5, None),
                row(Cell::Rnn, 1, 0.5, None),
            ],
            peers: vec![peer],
        };
        let expected = "burn-rnn on metal: gru float32\n\n\
            | N T I H | forward | a peer | ratio | training | a peer | ratio |\n\
            | --- | --- | --- | --- | --- | --- | --- |\n\
            | 1 5 3 4 | 1.000 | 3.000 | 3.00x | 2.000 | - | - |\n\
            | 2 5 3 4 | 1.500 | - | - | - | - | - |\n\n\
            burn-rnn on metal: rnn float32\n\n\
            | N T I H | forward | a peer | ratio | training | a peer | ratio |\n\
            | --- | --- | --- | --- | --- | --- | --- |\n\
            | 1 5 3 4 | 0.500 | - | - | - | - | - |\n";
        assert_eq!(write(&[ours]), expected);
    }
}
