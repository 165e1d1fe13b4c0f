//! A table of text: columns as wide as what is in them.

/// A column of a table: its title and a cell for each row.
pub(crate) struct Column {
    cells: Vec<String>,
    is_number: bool,
}

impl Column {
    pub(crate) fn left<T>(title: &str, rows: &[T], cell: impl Fn(&T) -> String) -> Self {
        let title = [title.to_owned()].into_iter();
        Self {
            cells: title.chain(rows.iter().map(cell)).collect(),
            is_number: false,
        }
    }

    pub(crate) fn right<T>(title: &str, rows: &[T], cell: impl Fn(&T) -> String) -> Self {
        Self {
            is_number: true,
            ..Self::left(title, rows, cell)
        }
    }
}

pub(crate) fn table(columns: &[Column]) -> String {
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let mut out = String::new();
    for row in 0..rows {
        let mut line = String::new();
        for column in columns {
            let width = column.cells.iter().map(String::len).max().unwrap_or(0);
            let cell = &column.cells[row];
            let text = match column.is_number {
                true => format!("{cell:>width$}  "),
                false => format!("{cell:width$}  "),
            };
            line.push_str(&text);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
