//! Reports as one HTML file each: style and plots are inside, and nothing is fetched.

mod compare;
mod page;
mod parts;
mod plot;
mod run;
mod sweep;

pub use compare::compare_page;
pub use run::run_page;
pub use sweep::sweep_page;
