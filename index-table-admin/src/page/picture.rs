//! Pictures: bars, histograms and bands as SVG.
//!
//! Their colours are classes of the style sheet, with the colour of the text as the default. So a picture can be shown
//! outside of the page, for example in the guide.

use maud::{Markup, html};

use super::frame::{grouped, shortened};

/// Returns a bar of parts of a whole. Each part has a description.
pub(super) fn bar(parts: &[(u64, &str)], whole: u64, label: &str) -> Markup {
    let whole = u128::from(whole.max(1));
    let mut from = 0;
    let parts = parts.iter().enumerate().map(|(at, (part, title))| {
        let width = u128::from(*part) * 1000 / whole;
        let start = from;
        from += width;
        (at, start, width, title)
    });
    html! {
        svg.bar role="img" aria-label=(label) viewBox="0 0 1000 10" preserveAspectRatio="none" {
            rect.whole width="1000" height="10" {}
            @for (at, start, width, title) in parts {
                rect class={ "p" (if at == 0 { 0 } else { 2 - at % 2 }) } x=(start) width=(width) height="10" { title { (title) } }
            }
        }
    }
}

/// A column of a histogram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// The values of the column.
    pub(super) label: String,
    /// The text below the column.
    pub(super) tick: String,
    pub(super) entries: u64,
}

/// The width of a histogram, and the height of its columns.
const WIDTH: usize = 720;
const HEIGHT: u64 = 160;

/// The maximum number of characters below a column.
const TICK: usize = 14;

/// The place of the labels below the columns.
#[derive(Clone, Copy, PartialEq)]
enum Ticks {
    /// Below each column.
    Each,
    /// Below each column, at an angle.
    Slanted,
    /// Below the first and the last column.
    Ends,
}

/// Returns a histogram: a column for each step. If all columns have a label, all labels are shown.
pub(super) fn histogram(steps: &[Step], label: &str) -> Markup {
    let most = steps.iter().map(|step| step.entries).max().unwrap_or(0).max(1);
    let count = steps.len().max(1);
    let wide = WIDTH / count;
    let gap = if wide > 6 { 2 } else { 0 };
    let longest = steps.iter().map(|step| step.tick.chars().count()).max().unwrap_or(0);
    let ticks = if steps.iter().any(|step| step.tick.is_empty()) || wide < 14 {
        Ticks::Ends
    } else if longest * 8 < wide {
        Ticks::Each
    } else {
        Ticks::Slanted
    };
    let below = if ticks == Ticks::Slanted { 24 + 6 * longest.min(TICK) } else { 24 };
    let bottom = HEIGHT + 16;
    let columns = steps.iter().enumerate().map(|(at, step)| {
        let scaled = u128::from(step.entries) * u128::from(HEIGHT) / u128::from(most);
        let height = u64::try_from(scaled).unwrap_or(HEIGHT).max(u64::from(step.entries > 0));
        (at, at * WIDTH / count, (at + 1) * WIDTH / count, height, step)
    });
    let tick = |at: usize, from: usize, to: usize, step: &Step| {
        let middle = usize::midpoint(from, to);
        let text = shortened(&step.tick, if ticks == Ticks::Ends { 2 * TICK } else { TICK });
        let y = bottom + 18;
        match ticks {
            Ticks::Each => html! {
                text.tick y=(y) x=(middle) text-anchor="middle" font-size="12" fill="currentColor" fill-opacity="0.7" { (text) }
            },
            Ticks::Slanted => html! {
                text.tick transform={ "translate(" (middle + 4) " " (bottom + 14) ") rotate(-40)" } text-anchor="end"
                    font-size="12" fill="currentColor" fill-opacity="0.7" { (text) }
            },
            Ticks::Ends if at == 0 => html! {
                text.axis y=(y) x="0" font-size="12" fill="currentColor" fill-opacity="0.7" { (text) }
            },
            Ticks::Ends if at + 1 == count => html! {
                text.axis y=(y) x=(WIDTH) text-anchor="end" font-size="12" fill="currentColor" fill-opacity="0.7" { (text) }
            },
            Ticks::Ends => html! {},
        }
    };
    html! {
        svg.histogram role="img" aria-label=(label) viewBox={ "0 0 " (WIDTH) " " (bottom + below as u64) } {
            text.axis x="0" y="10" font-size="12" fill="currentColor" fill-opacity="0.7" { (grouped(most)) }
            line x1="0" x2=(WIDTH) y1="16" y2="16" stroke="currentColor" stroke-opacity="0.2" {}
            @for (at, from, to, height, step) in columns {
                rect.part x=(from) y=(bottom - height) width=((to - from).saturating_sub(gap).max(1)) height=(height)
                    fill="currentColor" fill-opacity="0.6" {
                    title { (step.label) ": " (grouped(step.entries)) }
                }
                (tick(at, from, to, step))
            }
            line x1="0" x2=(WIDTH) y1=(bottom) y2=(bottom) stroke="currentColor" stroke-opacity="0.6" {}
        }
    }
}

/// A range of a band.
pub(super) struct Segment {
    /// The name inside of the segment.
    pub(super) name: String,
    /// The description that is shown at the pointer.
    pub(super) title: String,
    /// Its part of the width, in any unit.
    pub(super) weight: u64,
    /// The number of its colour.
    pub(super) colour: usize,
    /// Whether it is hatched.
    pub(super) is_hatched: bool,
}

/// The number of colours.
const COLOURS: usize = 8;

/// Returns a band of segments. A segment without weight is visible too.
pub(super) fn band(segments: &[Segment], label: &str, id: usize) -> Markup {
    let all: u128 = segments.iter().map(|segment| u128::from(segment.weight)).sum();
    let least = (WIDTH / segments.len().max(1)).min(6) as u128;
    let rest = (WIDTH as u128).saturating_sub(least * segments.len() as u128);
    let mut weight = 0_u128;
    let shapes = segments.iter().enumerate().map(|(at, segment)| {
        let x = |weight: u128, at: usize| least * at as u128 + rest * weight / all.max(1);
        let from = x(weight, at);
        weight += u128::from(segment.weight);
        (from, x(weight, at + 1), segment)
    });
    html! {
        svg.band role="img" aria-label=(label) viewBox={ "0 0 " (WIDTH) " 48" } {
            defs {
                pattern id={ "hatch" (id) } width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                    rect.hatch width="3" height="8" fill="currentColor" {}
                }
            }
            @for (from, to, segment) in shapes {
                g {
                    title { (segment.title) }
                    rect class={ "s" (segment.colour % COLOURS) } x=(from) y="4" height="40"
                        width=((to - from).saturating_sub(1).max(1)) fill="currentColor"
                        fill-opacity=(if segment.colour.is_multiple_of(2) { "0.25" } else { "0.45" }) {}
                    @if segment.is_hatched {
                        rect x=(from) y="4" height="40" width=((to - from).saturating_sub(1).max(1)) fill={ "url(#hatch" (id) ")" } fill-opacity="0.2" {}
                    }
                    @if segment.name.chars().count() as u128 * 9 + 8 < to - from {
                        text.name x=(u128::midpoint(from, to)) y="29" text-anchor="middle" font-size="14" fill="currentColor" {
                            (segment.name)
                        }
                    }
                }
            }
        }
    }
}

/// The colour of a shard in a list.
pub(super) fn swatch(colour: usize) -> Markup {
    html! {
        svg.swatch aria-hidden="true" viewBox="0 0 10 10" { rect class={ "s" (colour % COLOURS) } width="10" height="10" rx="2" {} }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widths(svg: &str) -> Vec<u64> {
        let rects = svg.split("<rect class=\"s").skip(1);
        let width = |rect: &str| rect.split(" width=\"").nth(1)?.split('"').next()?.parse().ok();
        rects.filter_map(width).collect()
    }

    #[test]
    fn a_band_has_the_proportions_of_its_weights() {
        let segment = |weight| Segment {
            name: "<a>".to_owned(),
            title: "<script>".to_owned(),
            weight,
            colour: 0,
            is_hatched: false,
        };
        let svg = band(&[segment(3), segment(0), segment(1)], "<script>", 0).into_string();
        assert!(!svg.contains("<script"), "{svg}");
        assert_eq!(widths(&svg), [531, 5, 181]);
        let svg = band(&[segment(0), segment(0)], "", 0).into_string();
        assert_eq!(widths(&svg), [5, 5]);
    }

    #[test]
    fn the_greatest_column_has_the_full_height() {
        let step = |label: &str, entries| Step {
            label: label.to_owned(),
            tick: label.to_owned(),
            entries,
        };
        let svg = histogram(&[step("a", 1), step("<b>", 200), step("c", 0)], "").into_string();
        let heights: Vec<_> =
            svg.split(" height=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(heights, ["1", "160", "0"], "{svg}");
        assert!(!svg.contains("<b>"));
        assert!(histogram(&[], "nothing").into_string().contains("nothing"));
    }

    /// The guide has the pictures of this page. With the variable `UPDATE_PICTURES`, this test writes them.
    #[test]
    fn the_guide_has_the_pictures_of_the_page() {
        let towns = [
            ("Bergen", 478),
            ("Bodø", 160),
            ("Drammen", 99),
            ("Kristiansand", 252),
            ("Oslo", 534),
            ("Stavanger", 351),
            ("Tromsø", 276),
            ("Trondheim", 378),
        ];
        let step = |(town, entries): (&str, u64)| Step {
            label: town.to_owned(),
            tick: town.to_owned(),
            entries,
        };
        let steps = towns.map(step);
        let segment = |(name, weight, colour): (&str, u64, usize)| Segment {
            name: name.to_owned(),
            title: format!("{name}: {weight} rows"),
            weight,
            colour,
            is_hatched: name == "middle",
        };
        let ranges = [("north", 625, 0), ("south", 235, 1), ("middle", 1552, 2), ("north", 588, 0)];
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/guide/admin.md");
        let guide = std::fs::read_to_string(path).expect("the guide");
        let mut drawn = guide.clone();
        for (name, picture) in [
            ("histogram", histogram(&steps, "Entries by town")),
            ("band", band(&ranges.map(segment), "The ranges of a shard map", 0)),
        ] {
            let begin = format!("<!-- {name} -->\n");
            let (before, rest) = drawn.split_once(&begin).expect("the place of the picture");
            let (_, after) = rest.split_once("<!-- end -->").expect("the end of the picture");
            let picture = picture.into_string().replace("><", ">\n<");
            drawn = format!("{before}{begin}<div>\n{picture}\n</div>\n<!-- end -->{after}");
        }
        if std::env::var_os("UPDATE_PICTURES").is_some() {
            std::fs::write(path, &drawn).expect("written");
        } else {
            assert!(
                drawn == guide,
                "set UPDATE_PICTURES=1 to draw the pictures of the guide again"
            );
        }
    }
}
