//! Progress bars on the standard error stream, if it is a terminal.

use std::fmt::Write;

use index_table::Progress;
use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};

use crate::output::Output;

/// The progress of long work.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// Creates a bar. It is hidden if the standard error stream is no terminal.
    pub(crate) fn new() -> Self {
        Self(ProgressBar::no_length())
    }

    /// Creates a bar that is hidden if the output is a terminal too, where it would be between the lines of the output.
    pub(crate) fn beside_output(out: &Output) -> Self {
        if out.progress_beside { Self::new() } else { Self(ProgressBar::hidden()) }
    }

    pub(crate) fn show(&self, at: Progress) {
        self.count(at.unit, at.done, at.total);
    }

    /// Shows the number of finished units, and of all units if it is known.
    pub(crate) fn count(&self, unit: &'static str, done: u64, total: Option<u64>) {
        let template = match (unit, total) {
            ("bytes", Some(_)) => {
                "{bar:30} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left"
            }
            ("bytes", None) => "{spinner} {bytes}, {binary_bytes_per_sec}",
            (_, Some(_)) => "{bar:30} {human_pos} of {human_len} {prefix}, {rate}, {eta} left",
            (_, None) => "{spinner} {human_pos} {prefix}, {rate}",
        };
        if self.0.prefix() != unit {
            self.0.set_prefix(unit);
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.0.set_style(style.with_key("rate", rate));
            }
        }
        if let Some(total) = total {
            self.0.set_length(total);
        }
        self.0.set_position(done);
    }
}

/// Writes the rate in whole units.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates, and a rate is not negative"
)]
fn rate(state: &ProgressState, out: &mut dyn Write) {
    // The output is a text in memory.
    let _ = write!(out, "{}/s", HumanCount(state.per_sec() as u64));
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
