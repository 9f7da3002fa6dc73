//! A table that drops columns before it breaks a word.

use crate::tables::{self, Width};

/// Blanks of a column: one on each side of its longest cell.
const PADDING: usize = 2;

/// A table, and each of its rows as a sentence for a terminal too narrow for a table.
pub(super) struct Columns {
    header: Vec<&'static str>,
    /// The first column of numbers, which are right-aligned.
    numbers_from: usize,
    /// Columns that can be dropped, in that order.
    dispensable: &'static [usize],
    rows: Vec<Vec<String>>,
    told: Vec<String>,
}

impl Columns {
    pub(super) fn new(
        header: Vec<&'static str>,
        numbers_from: usize,
        dispensable: &'static [usize],
    ) -> Self {
        Self { header, numbers_from, dispensable, rows: Vec::new(), told: Vec::new() }
    }

    pub(super) fn add(&mut self, cells: Vec<String>, told: String) {
        self.rows.push(cells);
        self.told.push(told);
    }

    /// Returns the rows as sentences.
    pub(super) fn told(&self) -> impl Iterator<Item = &str> {
        self.told.iter().map(String::as_str)
    }

    /// Returns the lines of as many columns as fit, if the essential ones do.
    pub(super) fn fitting(&self, style: Width) -> Option<String> {
        // Trailing blanks of a line are cut off.
        let room = style.columns().map_or(usize::MAX, |columns| usize::from(columns) + PADDING / 2);
        let mut shown: Vec<usize> = (0..self.header.len()).collect();
        let mut dispensable = self.dispensable.iter();
        while shown.iter().map(|column| self.width(*column)).sum::<usize>() > room {
            let gone = dispensable.next()?;
            shown.retain(|column| column != gone);
        }
        let header: Vec<&str> = shown.iter().map(|column| self.header[*column]).collect();
        let numbers = |at: &usize| shown[*at] >= self.numbers_from;
        let right: Vec<usize> = (0..shown.len()).filter(numbers).collect();
        let mut table = tables::table(&header, &right, style.endless());
        for row in &self.rows {
            table.add_row(shown.iter().filter_map(|column| row.get(*column)));
        }
        Some(tables::lines(&table))
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let widths = cells.map(|cell| cell.chars().count());
        widths.max().unwrap_or(0).max(self.header[column].chars().count()) + PADDING
    }
}
