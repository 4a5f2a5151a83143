//! The learning curve: what is measured while training, as a table and as a picture.

use std::{fmt::Write, fs, path::Path};

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

/// What one optimiser step measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The step, counted from 1.
    pub step: usize,
    /// Characters trained on so far.
    pub characters: usize,
    /// Seconds of training so far, measurements on held-out text left out.
    pub seconds: f64,
    /// Mean cross-entropy on the step's characters, before the step, in nats.
    pub loss: f32,
    /// Mean cross-entropy on held-out text after the step, in nats, where it was measured.
    pub held_out: Option<f32>,
}

/// Nats into bits per character.
pub fn bits(nats: f32) -> f32 {
    nats / std::f32::consts::LN_2
}

/// Writes `curve.csv` and `curve.svg` into `folder`.
///
/// # Errors
///
/// If one of them can't be written.
pub fn write(points: &[Point], title: &str, folder: &Path) -> Result<()> {
    let table = folder.join("curve.csv");
    fs::write(&table, csv(points)).with_context(|| format!("can't write {}", table.display()))?;
    let picture = folder.join("curve.svg");
    let svg = svg(points, title).map_err(|error| anyhow!("can't draw {}: {error}", picture.display()))?;
    fs::write(&picture, svg).with_context(|| format!("can't write {}", picture.display()))
}

fn csv(points: &[Point]) -> String {
    let mut table = String::from(
        "step,characters,seconds,loss,bits_per_character,held_out_loss,held_out_bits_per_character\n",
    );
    for point in points {
        let Point { step, characters, seconds, loss, held_out } = point;
        let held_out = match held_out {
            Some(loss) => format!("{loss},{}", bits(*loss)),
            None => ",".into(),
        };
        writeln!(table, "{step},{characters},{seconds:.3},{loss},{},{held_out}", bits(*loss))
            .expect("writing to a string");
    }
    table
}

fn svg(points: &[Point], title: &str) -> Result<String, Box<dyn std::error::Error>> {
    let training: Vec<(f64, f64)> =
        points.iter().map(|point| (point.step as f64, f64::from(bits(point.loss)))).collect();
    let held_out: Vec<(f64, f64)> = points
        .iter()
        .filter_map(|point| Some((point.step as f64, f64::from(bits(point.held_out?)))))
        .collect();
    let heights = || training.iter().chain(&held_out).map(|&(_, bits)| bits).filter(|bits| bits.is_finite());
    let top = heights().fold(1.0, f64::max) * 1.05;
    let bottom = heights().fold(top, f64::min).mul_add(0.95, 0.0);
    let right = training.last().map_or(1.0, |&(step, _)| step.max(2.0));

    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (900, 540)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 18))
            .margin(16)
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d(1.0..right, bottom..top)?;
        chart
            .configure_mesh()
            .x_desc("optimiser step")
            .y_desc("bits per character")
            .x_label_formatter(&|step| format!("{step:.0}"))
            .y_label_formatter(&|bits| format!("{bits:.1}"))
            .light_line_style(WHITE)
            .draw()?;
        let blue = RGBColor(78, 121, 167);
        let orange = RGBColor(225, 87, 44);
        chart
            .draw_series(LineSeries::new(training, blue.stroke_width(1)))?
            .label("training")
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], blue.stroke_width(2)));
        chart
            .draw_series(LineSeries::new(held_out, orange.stroke_width(2)).point_size(3))?
            .label("held out")
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], orange.stroke_width(2)));
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE)
            .border_style(BLACK)
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points() -> Vec<Point> {
        vec![
            Point { step: 1, characters: 64, seconds: 0.5, loss: 2.0, held_out: None },
            Point { step: 2, characters: 128, seconds: 1.0, loss: 1.0, held_out: Some(1.5) },
        ]
    }

    #[test]
    fn the_table_has_a_row_for_each_step() {
        let table = csv(&points());
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[1], "1,64,0.500,2,2.885390,,".replace("2.885390", &bits(2.0).to_string()));
        assert_eq!(rows[2], format!("2,128,1.000,1,{},1.5,{}", bits(1.0), bits(1.5)));
    }

    #[test]
    fn the_picture_shows_both_curves() {
        let svg = svg(&points(), "a title").unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in ["a title", "bits per character", "optimiser step", "training", "held out"] {
            assert!(svg.contains(text), "{text} is missing");
        }
        assert_eq!(svg.matches("#4E79A7").count(), 2, "the curve and its legend");
    }

    #[test]
    fn a_curve_of_one_step_or_none_can_be_drawn() {
        assert!(svg(&points()[..1], "a title").is_ok());
        assert!(svg(&[], "a title").is_ok());
        let infinite = Point { loss: f32::NAN, ..points()[0] };
        assert!(svg(&[infinite], "a title").is_ok());
    }
}
