//! Applying the messages of a queue (see [`write::queue`](crate::write::queue)) to eventual indexes.

mod apply;
mod dead_letters;
mod worker;

pub use apply::Drained;
pub(crate) use apply::drain;
pub use dead_letters::{DeadLetter, DeadLetters};
pub(crate) use dead_letters::{
    list as list_dead_letters, remove as drop_dead_letter, retry as retry_dead_letters,
};
pub use worker::IndexWorker;
