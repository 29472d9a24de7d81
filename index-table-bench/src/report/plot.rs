//! One picture of small plots: cost against the size of the table, both on logarithmic scales.

use std::fmt::Write as _;

use super::{MEASURES, Unit, thousands};
use crate::results::{Measure, Results};

const COLUMNS: usize = 3;
/// The size of a plot in pixels, with its margins.
const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 34.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 28.0;
/// The height of the legend above the plots.
const LEGEND: f64 = 40.0;

/// Colours for colour-blind readers (Okabe and Ito), in the order of the contenders.
const COLOURS: [&str; 8] =
    ["#000000", "#0072b2", "#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#999999"];

/// Returns the picture as SVG.
pub(super) fn picture(results: &Results) -> String {
    let contenders = results.contenders();
    let measures: Vec<_> =
        MEASURES.iter().filter(|(measure, ..)| *measure != Measure::Allocations).collect();
    let width = WIDTH * COLUMNS as f64;
    let height = LEGEND + HEIGHT * measures.len().div_ceil(COLUMNS) as f64;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>"
    );
    for (at, name) in contenders.iter().enumerate() {
        let x = 16.0 + at as f64 * (width - 16.0) / contenders.len() as f64;
        let colour = COLOURS[at % COLOURS.len()];
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"20\" x2=\"{:.1}\" y2=\"20\" stroke=\"{colour}\" \
             stroke-width=\"{}\"/><text x=\"{:.1}\" y=\"24\">{}</text>",
            x + 20.0,
            stroke(at),
            x + 26.0,
            escape(name)
        );
    }
    for (at, (measure, title, unit)) in measures.iter().enumerate() {
        let x = (at % COLUMNS) as f64 * WIDTH;
        let y = LEGEND + (at / COLUMNS) as f64 * HEIGHT;
        let _ = writeln!(out, "<g transform=\"translate({x} {y})\">");
        plot(&mut out, results, &contenders, *measure, title, *unit);
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

fn stroke(contender: usize) -> &'static str {
    if contender == 0 { "3" } else { "1.5" }
}

fn plot(
    out: &mut String,
    results: &Results,
    contenders: &[&str],
    measure: Measure,
    title: &str,
    unit: Unit,
) {
    let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"18\" font-weight=\"bold\">{title}</text>");
    let sizes = results.sizes();
    let lines: Vec<Vec<(usize, f64)>> = contenders
        .iter()
        .map(|name| {
            let figure = |&rows: &usize| Some((rows, results.figure(rows, measure, name)?.median?));
            sizes.iter().filter_map(figure).collect()
        })
        .collect();
    let points = || lines.iter().flatten();
    let (low, high) = points().fold((f64::INFINITY, 0.0_f64), |(low, high), (_, figure)| {
        (low.min(*figure), high.max(*figure))
    });
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else { return };
    if !low.is_finite() || low <= 0.0 {
        return;
    }
    // The scale has whole decades.
    let (low, high) = (low.log10().floor(), high.log10().floor() + 1.0);
    let (first, last) = ((*first as f64).log10(), (*last as f64).log10());
    let x = |rows: usize| {
        let share =
            if last > first { ((rows as f64).log10() - first) / (last - first) } else { 0.5 };
        LEFT + share * (WIDTH - LEFT - RIGHT)
    };
    let y = |figure: f64| {
        let share = (figure.log10() - low) / (high - low);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    };
    let mut decade = low;
    while decade <= high {
        let (figure, at) = (10_f64.powf(decade), y(10_f64.powf(decade)));
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 5.0,
            at + 4.0,
            round(unit, figure)
        );
        decade += 1.0;
    }
    for (at, &rows) in sizes.iter().enumerate() {
        // A size too close to the previous one has no label.
        let crowded = at > 0 && x(rows) - x(sizes[at - 1]) < 45.0;
        let label = if crowded { String::new() } else { thousands(rows) };
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{label}</text>",
            x(rows),
            HEIGHT - BOTTOM + 15.0
        );
    }
    // The first contender is drawn last, above the others.
    for (at, line) in lines.iter().enumerate().rev() {
        let colour = COLOURS[at % COLOURS.len()];
        let points: Vec<String> =
            line.iter().map(|&(rows, figure)| format!("{:.1},{:.1}", x(rows), y(figure))).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{}\"/>",
            points.join(" "),
            stroke(at)
        );
        for point in points {
            let (x, y) = point.split_once(',').unwrap_or_default();
            let _ = writeln!(out, "<circle cx=\"{x}\" cy=\"{y}\" r=\"2.5\" fill=\"{colour}\"/>");
        }
    }
}

/// Formats a power of ten with its unit.
fn round(unit: Unit, figure: f64) -> String {
    match unit {
        Unit::Time if figure >= 0.9e9 => format!("{:.0} s", figure / 1e9),
        Unit::Time if figure >= 0.9e6 => format!("{:.0} ms", figure / 1e6),
        Unit::Time if figure >= 0.9e3 => format!("{:.0} µs", figure / 1e3),
        Unit::Time => format!("{figure:.0} ns"),
        Unit::Bytes => format!("{figure:.0} B"),
        Unit::Count => format!("{figure}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Figure;

    #[test]
    fn a_line_for_each_contender_that_has_figures() {
        let figure = |rows, contender: &str, median| Figure {
            rows,
            measure: Measure::Get,
            contender: contender.to_owned(),
            median,
            spread: None,
            ratio: None,
        };
        let figures = vec![
            figure(100, "a", Some(10.0)),
            figure(100, "b <c>", None),
            figure(10_000, "a", Some(1000.0)),
        ];
        let picture = picture(&Results { figures, ..Results::default() });
        // The line goes from the lowest decade at the left to the second highest at the right.
        assert!(picture.contains("points=\"62.0,192.0 306.0,84.0\""), "{picture}");
        assert!(picture.contains("b &lt;c>"));
        assert_eq!(picture.matches("<circle").count(), 2);
        assert!(picture.contains(">10,000<"));
    }
}
