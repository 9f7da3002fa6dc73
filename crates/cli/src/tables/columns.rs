//! A table that drops columns before it breaks a word.

use super::{Width, lines, table, wrap};

/// Blanks of a column: one on each side of its longest cell.
const PADDING: usize = 2;

/// A table, and each of its rows as a sentence for a terminal too narrow for a table.
pub(crate) struct Columns {
    header: Vec<&'static str>,
    /// Columns of numbers, which are right-aligned.
    numbers: &'static [usize],
    /// Columns that can be dropped, in that order.
    dispensable: &'static [usize],
    rows: Vec<Vec<String>>,
    told: Vec<String>,
}

impl Columns {
    pub(crate) fn new(
        header: Vec<&'static str>,
        numbers: &'static [usize],
        dispensable: &'static [usize],
    ) -> Self {
        Self { header, numbers, dispensable, rows: Vec::new(), told: Vec::new() }
    }

    pub(crate) fn add(&mut self, cells: Vec<String>, told: String) {
        self.rows.push(cells);
        self.told.push(told);
    }

    /// Returns the rows as sentences.
    pub(crate) fn told(&self) -> impl Iterator<Item = &str> {
        self.told.iter().map(String::as_str)
    }

    /// Returns the lines of as many columns as fit, if the essential ones do.
    pub(crate) fn fitting(&self, style: Width) -> Option<String> {
        let mut shown: Vec<usize> = (0..self.header.len()).collect();
        if !self.fit(&shown, style) {
            shown.retain(|column| !self.dispensable.contains(column) || !self.is_empty(*column));
        }
        let mut dispensable = self.dispensable.iter();
        while !self.fit(&shown, style) {
            let gone = dispensable.next()?;
            shown.retain(|column| column != gone);
        }
        let header: Vec<&str> = shown.iter().map(|column| self.header[*column]).collect();
        let numbers = |at: &usize| self.numbers.contains(&shown[*at]);
        let right: Vec<usize> = (0..shown.len()).filter(numbers).collect();
        let mut fitting = table(&header, &right, style.endless());
        for row in &self.rows {
            fitting.add_row(shown.iter().filter_map(|column| row.get(*column)));
        }
        Some(lines(&fitting))
    }

    /// Returns the lines of as many columns as fit, a line that says where the others are (in the output of `all`), or
    /// the rows as sentences.
    pub(crate) fn text(&self, style: Width, all: &str) -> String {
        let Some(mut text) = self.fitting(style) else {
            let room = style.columns().map(usize::from);
            return self.told().flat_map(|row| wrap(row, room)).map(|line| line + "\n").collect();
        };
        let told = (0..self.header.len()).filter(|column| !self.is_empty(*column));
        if !self.fit(&told.collect::<Vec<_>>(), style) {
            let more = format!("… and more columns than fit here; {all} has all");
            wrap(&more, style.columns().map(usize::from)).iter().for_each(|line| {
                text += line;
                text.push('\n');
            });
        }
        text
    }

    fn fit(&self, columns: &[usize], style: Width) -> bool {
        // Trailing blanks of a line are cut off.
        let room = style.columns().map_or(usize::MAX, |columns| usize::from(columns) + PADDING / 2);
        columns.iter().map(|column| self.width(*column)).sum::<usize>() <= room
    }

    fn is_empty(&self, column: usize) -> bool {
        self.rows.iter().all(|row| row.get(column).is_none_or(String::is_empty))
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let widths = cells.map(|cell| cell.chars().count());
        widths.max().unwrap_or(0).max(self.header[column].chars().count()) + PADDING
    }
}
