//! Who goes, when and in which order, on one node that was isolated at second 0.

mod going;
mod groups;
mod histories;
mod sparing;
mod world;
