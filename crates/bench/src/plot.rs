//! Draws times as bars, a panel for forward and one for training.

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::{
    options::PlotOptions,
    report::{Report, Row},
};

type Result<T> = std::result::Result<T, String>;

/// One bar's height and the room around a group of bars.
const BAR: u32 = 14;
const GROUP_GAP: u32 = 12;
const PANEL_MARGIN: u32 = 110;
const PANEL_WIDTH: u32 = 640;

/// Colours that people who do not see red and green apart can tell apart.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
];

/// Which time of a row a panel shows.
type Time = fn(&Row) -> Option<f64>;

const PANELS: [(&str, Time); 2] = [("forward", |row| Some(row.forward_ms)), ("training", |row| row.train_ms)];

/// Reads the files and writes the picture.
pub fn run(options: &PlotOptions) -> Result<()> {
    let mut reports = Vec::new();
    for file in &options.files {
        let mut report = Report::read(file)?;
        let peers = std::mem::take(&mut report.peers);
        reports.push(report);
        reports.extend(peers);
    }
    let picture = draw(&reports)?;
    std::fs::write(&options.out, picture)
        .map_err(|error| format!("{} cannot be written: {error}", options.out.display()))?;
    println!("{} written", options.out.display());
    Ok(())
}

/// The picture as SVG: a line of panels for each cell, element type and direction of the first report.
fn draw(reports: &[Report]) -> Result<String> {
    let first = &reports[0].rows;
    let mut kinds: Vec<&Row> = Vec::new();
    for row in first {
        if !kinds.iter().any(|kind| kind.is_of_same_kind(row)) {
            kinds.push(row);
        }
    }
    if kinds.is_empty() {
        return Err("the first file has no times to draw".into());
    }

    let group = BAR * reports.len() as u32 + GROUP_GAP;
    let rows_of = |kind: &Row| first.iter().filter(|row| row.is_of_same_kind(kind)).collect::<Vec<_>>();
    let heights: Vec<u32> =
        kinds.iter().map(|kind| rows_of(kind).len() as u32 * group + PANEL_MARGIN).collect();
    let size = (PANEL_WIDTH * PANELS.len() as u32, heights.iter().sum());
    let mut picture = String::new();
    {
        let mut rest = SVGBackend::with_string(&mut picture, size).into_drawing_area();
        rest.fill(&WHITE).map_err(|error| error.to_string())?;
        for (kind, height) in kinds.iter().zip(heights) {
            let (line, below) = rest.split_vertically(height);
            rest = below;
            for (panel, (name, time)) in line.split_evenly((1, PANELS.len())).iter().zip(PANELS) {
                let title = format!("{}: {name}", kind.kind());
                draw_panel(panel, &title, &rows_of(kind), reports, time)?;
            }
        }
        rest.present().map_err(|error| error.to_string())?;
    }
    Ok(picture)
}

/// A group of bars for each row, a bar for each report that has it.
fn draw_panel(
    panel: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    rows: &[&Row],
    reports: &[Report],
    time: Time,
) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    // A bar for each report and row, with the row's place from the top.
    let bars: Vec<(usize, usize, f64)> = (reports.iter().enumerate())
        .flat_map(|(report, of)| {
            rows.iter().enumerate().filter_map(move |(place, row)| {
                Some((report, place, of.row(row).and_then(time).filter(|&time| time > 0.0)?))
            })
        })
        .collect();
    let least = bars.iter().map(|bar| bar.2).fold(f64::MAX, f64::min);
    let most = bars.iter().map(|bar| bar.2).fold(0.0, f64::max);
    if bars.is_empty() {
        return Ok(());
    }

    let labels: Vec<String> = rows.iter().map(|row| row.shape().to_string()).collect();
    let places = rows.len() as f64;
    let mut chart = ChartBuilder::on(panel)
        .caption(title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(170)
        .build_cartesian_2d((least / 2.0..most * 3.0).log_scale(), 0.0..places)
        .map_err(|error| failed(&error))?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .y_labels(0)
        .light_line_style(BLACK.mix(0.06))
        .x_desc("milliseconds")
        .x_label_formatter(&|value| format_milliseconds(*value))
        .draw()
        .map_err(|error| failed(&error))?;

    let room = f64::from(GROUP_GAP) / f64::from(BAR * reports.len() as u32 + GROUP_GAP);
    let thickness = (1.0 - room) / reports.len() as f64;
    for (report, of) in reports.iter().enumerate() {
        let colour = COLOURS[report % COLOURS.len()];
        let of_report = bars.iter().filter(|bar| bar.0 == report).map(|&(_, place, time)| {
            let top = places - place as f64 - room / 2.0 - report as f64 * thickness;
            Rectangle::new([(least / 2.0, top), (time, top - thickness)], colour.filled())
        });
        chart
            .draw_series(of_report)
            .map_err(|error| failed(&error))?
            .label(&of.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled()));
    }
    let anchor = |horizontal| Pos::new(horizontal, VPos::Center);
    let value_style = TextStyle::from(("sans-serif", 11)).pos(anchor(HPos::Left));
    let label_style = TextStyle::from(("sans-serif", 13)).pos(anchor(HPos::Right));
    for &(report, place, time) in &bars {
        let middle = places - place as f64 - room / 2.0 - (report as f64 + 0.5) * thickness;
        let (x, y) = chart.backend_coord(&(time, middle));
        draw_text(panel, &format_milliseconds(time), &value_style, (x + 4, y))?;
    }
    for (place, label) in labels.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(least / 2.0, places - place as f64 - 0.5));
        draw_text(panel, label, &label_style, (x - 8, y))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 13))
        .draw()
        .map_err(|error| failed(&error))
}

/// Draws at a place that is counted from the picture's corner, as the chart's coordinates are.
fn draw_text(
    panel: &DrawingArea<SVGBackend<'_>, Shift>,
    text: &str,
    style: &TextStyle<'_>,
    (x, y): (i32, i32),
) -> Result<()> {
    let (left, top) = panel.get_base_pixel();
    panel.draw_text(text, style, (x - left, y - top)).map_err(|error| error.to_string())
}

/// Three digits that matter.
fn format_milliseconds(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Cell, Precision, Problem, Set};

    fn report(name: &str, factor: f64) -> Report {
        let row = |(at, &shape)| {
            let problem = Problem::new(Cell::Gru, shape, false, Precision::F32);
            let time = factor * (at + 1) as f64;
            Row::new(&problem, time, Some(3.0 * time))
        };
        let rows = Set::Cpu.shapes()[2..4].iter().enumerate().map(row).collect();
        Report { name: name.into(), device: None, rows, peers: Vec::new() }
    }

    #[test]
    fn every_shape_and_report_has_its_bar() {
        let picture = draw(&[report("ours", 1.0), report("theirs", 2.5)]).expect("drawn");
        assert!(picture.starts_with("<svg"));
        for text in ["gru float32: forward", "gru float32: training", "N16 T128 I64 H128", "theirs", "ours"] {
            assert!(picture.contains(text), "{text}");
        }
        for time in ["1.00", "2.00", "2.50", "5.00", "7.50", "15.0"] {
            assert!(picture.contains(&format!("\n{time}\n")), "{time}");
        }
    }

    #[test]
    fn a_report_without_the_shape_has_no_bar() {
        let alone = draw(&[report("ours", 1.0)]).expect("drawn");
        let mut other = report("theirs", 2.0);
        other.rows.clear();
        let both = draw(&[report("ours", 1.0), other]).expect("drawn");
        let bars = |picture: &str| picture.matches("fill=\"#E69F00\"").count();
        assert_eq!(bars(&alone), 0);
        // Only the legends of the two panels.
        assert_eq!(bars(&both), 2);
    }

    #[test]
    fn nothing_to_draw_is_said() {
        let mut empty = report("ours", 1.0);
        empty.rows.clear();
        assert!(draw(&[empty]).unwrap_err().contains("no times"));
    }
}
