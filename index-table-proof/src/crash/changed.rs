//! Changes between `Durability::Full` and `Durability::Journal`, also while another process reads.

use std::path::Path;

use index_table::{Durability, Result, Store};

use super::{Beside, Failure, Known, replaced::kill_writer, say};
use crate::{
    random::Random,
    shop::{Model, Shop},
};

/// The commits with each durability.
const COMMITS: u32 = 2;

/// Opens the store with one durability after the other, and commits.
pub(super) fn write(path: &Path) -> Result<()> {
    let mut model = Model::default();
    for number in std::process::id().. {
        let options = if number.is_multiple_of(2) {
            Store::options().durability(Durability::Full)
        } else {
            crate::journal()
        };
        let shop = Shop::new(options.open(path.join("store"))?)?;
        say("open");
        model.advance(shop.steps()?);
        for _ in 0..COMMITS {
            match shop.step(&mut model) {
                Ok(Ok(())) => say("done"),
                Ok(Err(error)) => return Err(error),
                Err(wrong) => say(&format!("error: {wrong}")),
            }
        }
    }
    Ok(())
}

/// Keeps the store open for reading, in most rounds. In half of these, the writer before was killed meanwhile.
pub(super) fn keep_reader(path: &Path, known: &mut Known) -> Result<Option<Beside>, Failure> {
    match Random(known.random).below(3) {
        0 => Ok(None),
        1 if path.join("store").join("data.mdb").exists() => {
            let store = crate::options().read_only(true).open(path.join("store"));
            let shop = store.and_then(Shop::new).map_err(|error| error.to_string())?;
            Ok(Some(Beside::Shop(shop)))
        }
        _ => kill_writer(path, known),
    }
}
