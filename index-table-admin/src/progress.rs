//! Progress bars on the standard error stream, if it is a terminal.

use std::{fmt::Write, sync::Arc, time::Duration};

use index_table::Progress;
use indicatif::{
    BinaryBytes, HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressState, ProgressStyle,
};

use crate::{
    operations::Job,
    output::{Output, error_width},
};

/// The progress of long work.
pub(crate) struct Bar(ProgressBar, Option<Arc<Job>>);

impl Bar {
    /// Creates a bar. It is hidden if the standard error stream is no terminal.
    pub(crate) fn new() -> Self {
        Self(ProgressBar::no_length(), None)
    }

    /// Creates a bar of work that is a job of a service, or a command.
    pub(crate) fn of(out: &Output) -> Self {
        match &out.job {
            Some(job) => Self(ProgressBar::hidden(), Some(Arc::clone(job))),
            None => Self::new(),
        }
    }

    /// Creates a bar that is hidden if the output is a terminal too, where it would be between the lines of the output.
    pub(crate) fn beside_output(out: &Output) -> Self {
        if out.progress_beside { Self::new() } else { Self(ProgressBar::hidden(), None) }
    }

    pub(crate) fn show(&self, at: Progress) {
        self.count(at.unit, at.done, at.total);
    }

    /// Shows the number of finished units, and of all units if it is known.
    pub(crate) fn count(&self, unit: &str, done: u64, total: Option<u64>) {
        if let Some(job) = &self.1 {
            job.count(unit, done, total);
            return;
        }
        if self.0.prefix() != unit {
            self.0.set_prefix(unit.to_owned());
            let unit = unit.to_owned();
            let template = if total.is_some() { "{line}" } else { "{spinner} {line}" };
            if let Ok(style) = ProgressStyle::with_template(template) {
                let line = move |state: &ProgressState, out: &mut dyn Write| {
                    // The output is a text in memory.
                    let _ = out.write_str(&line(&unit, &At::of(state), room()));
                };
                self.0.set_style(style.with_key("line", line));
            }
        }
        if let Some(total) = total {
            self.0.set_length(total);
        }
        self.0.set_position(done);
    }
}

/// The state of the work.
struct At {
    done: u64,
    total: Option<u64>,
    rate: u64,
    left: Duration,
}

impl At {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the conversion saturates, and a rate is not negative"
    )]
    fn of(state: &ProgressState) -> Self {
        let (rate, left) = (state.per_sec() as u64, state.eta());
        Self { done: state.pos(), total: state.len(), rate, left }
    }
}

/// The columns of a bar, if there is room.
const WIDEST: usize = 30;

/// The least columns of a bar.
const NARROWEST: usize = 8;

/// Returns the columns for a line of progress. A line in the last column would begin the next line of some terminals.
fn room() -> usize {
    error_width().unwrap_or(80).saturating_sub(1)
}

/// Returns a line of progress that fits. In a narrow terminal, the bar is shorter; then the rate is left out, then the bar and
/// the remaining time.
fn line(unit: &str, at: &At, room: usize) -> String {
    let is_bytes = unit == "bytes";
    let count = |count| {
        if is_bytes { HumanBytes(count).to_string() } else { HumanCount(count).to_string() }
    };
    let done = match (at.total, is_bytes) {
        (Some(total), true) => format!("{} of {}", count(at.done), count(total)),
        (Some(total), false) => format!("{} of {} {unit}", count(at.done), count(total)),
        (None, true) => count(at.done),
        (None, false) => format!("{} {unit}", count(at.done)),
    };
    let rate =
        if is_bytes { BinaryBytes(at.rate).to_string() } else { HumanCount(at.rate).to_string() };
    let rate = format!("{rate}/s");
    let Some(total) = at.total else {
        // A spinner is before it.
        let room = room.saturating_sub(2);
        let all = format!("{done}, {rate}");
        return if all.len() <= room { all } else { done.chars().take(room).collect() };
    };
    let left = format!("{:#} left", HumanDuration(at.left));
    let texts = [format!("{done}, {rate}, {left}"), format!("{done}, {left}"), done];
    let bar = |text: &String| Some(room.checked_sub(text.len() + 1)?.min(WIDEST));
    let fits = texts.iter().find_map(|text| Some((text, bar(text).filter(|it| *it >= NARROWEST)?)));
    if let Some((text, columns)) = fits {
        let filled = u128::from(at.done.min(total)) * columns as u128 / u128::from(total.max(1));
        let filled = usize::try_from(filled).unwrap_or(columns).min(columns);
        return format!("{}{} {text}", "█".repeat(filled), "░".repeat(columns - filled));
    }
    let text = texts.iter().find(|text| text.len() <= room).or_else(|| texts.last());
    text.map_or_else(String::new, |text| text.chars().take(room).collect())
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;

    #[test]
    fn a_line_of_progress_fits_the_terminal() {
        let at = |total| At { done: 250_000, total, rate: 12_000, left: Duration::from_secs(62) };
        let whole = line("entries", &at(Some(1_000_000)), 79);
        assert!(whole.ends_with("250,000 of 1,000,000 entries, 12,000/s, 62s left"), "{whole}");
        let narrow = line("entries", &at(Some(1_000_000)), 39);
        assert_eq!(narrow, "██░░░░░░░░ 250,000 of 1,000,000 entries");
        assert_eq!(line("entries", &at(None), 79), "250,000 entries, 12,000/s");
        assert_eq!(line("entries", &at(None), 20), "250,000 entries");
        let bytes = line("bytes", &at(Some(1 << 30)), 79);
        assert!(bytes.ends_with("244.14 KiB of 1.00 GiB, 11.72 KiB/s, 62s left"), "{bytes}");
        for total in [None, Some(0), Some(1_000_000), Some(u64::MAX)] {
            for unit in ["entries", "bytes", "rows deleted"] {
                for room in 0..100 {
                    let line = line(unit, &at(total), room);
                    assert!(line.width() <= room, "{room}: {line}");
                    assert!(room < 30 || !line.is_empty());
                }
            }
        }
    }
}
