//! Tests that need a privilege of the process: a mount, or another user.

/// Set where a test that lacks a privilege has to fail, as in `.ci/run`. Elsewhere it ends without a
/// result.
const PRIVILEGED: &str = "INDEX_TABLE_PRIVILEGED_TESTS";

/// Ends a test for which the process lacks a privilege.
pub(crate) fn not_privileged(reason: &str) -> Result<(), Box<dyn std::error::Error>> {
    if std::env::var_os(PRIVILEGED).is_some() {
        return Err(format!("{PRIVILEGED} is set, and {reason}").into());
    }
    eprintln!("not run: {reason}");
    Ok(())
}
