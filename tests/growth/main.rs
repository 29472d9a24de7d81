//! Stores with one data file that get further ones while they are used.

mod archived;
mod basic;
mod beside;
mod followers;
mod killed;
mod readers;
mod table;
mod table_beside;
mod unopened;
