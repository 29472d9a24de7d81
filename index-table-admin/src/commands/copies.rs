//! Checking, copying and cleaning a whole store.

use std::path::Path;

use serde_json::json;

use crate::{
    failure::{Code, Failure},
    open::Opened,
    output::Output,
    progress::Bar,
};

pub(crate) fn check(out: &Output, dir: &Path) -> Result<(), Failure> {
    let opened = Opened::to_read(dir)?;
    let bar = Bar::new();
    opened.store.check_with(&mut |at| bar.show(at))?;
    drop(bar);
    let missing = opened.missing_shards();
    if !missing.is_empty() {
        let message = format!("the available shards are intact; {}", missing.join("; "));
        return Err(Failure { code: Code::Unavailable, message });
    }
    let path = dir.display().to_string();
    Ok(out.put(&json!({ "store": path, "intact": true }), |text| {
        writeln!(text, "the pages of `{path}` are intact")
    })?)
}

pub(crate) fn copy(out: &Output, dir: &Path, to: &Path, compact: bool) -> Result<(), Failure> {
    let opened = Opened::to_read(dir)?;
    let bar = Bar::new();
    let backup = opened.store.backup(to).progress(|at| bar.show(at));
    if compact {
        backup.compact().run()?;
    } else {
        backup.run()?;
    }
    drop(bar);
    let (from, to) = (dir.display().to_string(), to.display().to_string());
    Ok(out.put(&json!({ "store": from, "copy": to }), |text| {
        writeln!(text, "copied `{from}` to `{to}`")
    })?)
}

pub(crate) fn drop_retired(out: &Output, dir: &Path) -> Result<(), Failure> {
    let opened = Opened::to_write(dir)?;
    let dropped = opened.store.drop_retired()?;
    Ok(out.put(&json!({ "dropped": dropped }), |text| match dropped.as_slice() {
        [] => writeln!(text, "no index is retired"),
        names => names.iter().try_for_each(|name| writeln!(text, "dropped `{name}`")),
    })?)
}
