//! How the page looks, by day and by night, wide and narrow, and on paper.

pub(super) const STYLE: &str = include_str!("style.css");
