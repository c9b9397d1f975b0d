//! A report's contents, which are written once and shown as plain text or as one HTML file with
//! its style and plots inside.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;
use serde_json::Value;

use crate::compare::{Estimate, Interval};

pub(super) const SERIES: usize = 7;

const STYLE: &str = include_str!("page.css");

pub(crate) struct Page {
    title: String,
    text: String,
    html: String,
}

impl Page {
    pub(crate) fn new(title: String) -> Self {
        Self { text: format!("{title}\n"), html: String::new(), title }
    }

    /// Adds a box that stands out, with a word before its text.
    pub(crate) fn banner(&mut self, word: &str, text: &str) {
        self.text += &format!("{word}: {text}\n");
        let text = escape(text);
        self.html += &format!("<p class=\"banner\"><strong>{word}</strong> {text}</p>\n");
    }

    pub(crate) fn headline(&mut self, text: &str) {
        self.text += &format!("{text}\n");
        self.html += &format!("<p class=\"headline\">{}</p>\n", escape(text));
    }

    pub(crate) fn warnings(&mut self, texts: impl Iterator<Item = String>) {
        let mut items = String::new();
        for text in texts {
            self.text += &format!("warning: {text}\n");
            items += &format!("<li>{}</li>\n", escape(&text));
        }
        if !items.is_empty() {
            self.html += &format!("<h2>Warnings</h2>\n<ul class=\"warnings\">\n{items}</ul>\n");
        }
    }

    pub(crate) fn table(&mut self, title: &str, table: &Table, note: &str) {
        if table.rows.is_empty() {
            return;
        }
        let end = if note.is_empty() { "" } else { "\n" };
        self.text += &format!("\n{title}\n{table}{note}{end}");
        let (table, note) = (table.html(), escape(note));
        self.html += &format!("<h2>{title}</h2>\n{table}<p class=\"note\">{note}</p>\n");
    }

    pub(crate) fn facts<N: AsRef<str>>(
        &mut self,
        title: &str,
        facts: impl IntoIterator<Item = (N, String)>,
    ) {
        let (mut lines, mut items) = (String::new(), String::new());
        for (name, value) in facts {
            let name = name.as_ref();
            lines += &format!("  {name}: {value}\n");
            items += &format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(&value));
        }
        if !items.is_empty() {
            self.text += &format!("\n{title}\n{lines}");
            self.html += &format!("<h2>{title}</h2>\n<dl>\n{items}</dl>\n");
        }
    }

    pub(crate) fn fields(&mut self, title: &str, value: &impl Serialize) {
        let (mut facts, value) = (Vec::new(), serde_json::to_value(value).unwrap_or_default());
        collect_fields("", &value, &mut facts);
        self.facts(title, facts);
    }

    /// Adds plots, which only the HTML form has.
    pub(super) fn figure(
        &mut self,
        title: &str,
        legend: &[(usize, &str)],
        plots: &str,
        note: &str,
    ) {
        let entries = legend.iter().map(|(series, name)| swatch(*series, name));
        let legend = match entries.collect::<String>() {
            entries if entries.is_empty() => entries,
            entries => format!("<p class=\"legend\">{entries}</p>\n"),
        };
        let (title, note) = (escape(title), escape(note));
        self.html += &format!(
            "<figure>\n<h2>{title}</h2>\n{legend}{plots}\
             <figcaption>{note}</figcaption>\n</figure>\n"
        );
    }

    pub(super) fn html(&self) -> String {
        let (title, body) = (escape(&self.title), &self.html);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
             <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n"
        )
    }
}

impl Display for Page {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

fn collect_fields(name: &str, value: &Value, facts: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (field, value) in fields {
                collect_fields(format!("{name} {}", field.replace('_', " ")).trim(), value, facts);
            }
        }
        Value::String(text) => facts.push((name.to_owned(), text.clone())),
        value => facts.push((name.to_owned(), value.to_string())),
    }
}

/// Rows of aligned cells; the first cell of each names it.
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// A figure or a name, with what is shown small beside it.
#[derive(Clone, Default)]
pub(crate) struct Cell {
    text: String,
    small: String,
    series: Option<usize>,
}

impl Table {
    pub(crate) fn new<H: Into<String>>(header: impl IntoIterator<Item = H>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, name: impl Into<Cell>, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(std::iter::once(name.into()).chain(cells).collect());
    }

    fn html(&self) -> String {
        let header = self.header.iter();
        let header = header.map(|cell| format!("<th scope=\"col\">{}</th>", escape(cell)));
        let row = |cells: &Vec<Cell>| {
            let cells = cells.iter().enumerate().map(|(column, cell)| match column {
                0 => format!("<th scope=\"row\">{}</th>", cell.html()),
                _ => format!("<td>{}</td>", cell.html()),
            });
            format!("<tr>{}</tr>\n", cells.collect::<String>())
        };
        let rows: String = self.rows.iter().map(row).collect();
        let header: String = header.collect();
        format!(
            "<div class=\"wide\"><table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{rows}\
             </tbody>\n</table></div>\n"
        )
    }
}

impl Display for Table {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let rows = self.rows.iter().map(|cells| cells.iter().map(Cell::to_string).collect());
        let lines: Vec<Vec<String>> = std::iter::once(self.header.clone()).chain(rows).collect();
        let width = |column: usize| {
            let cells = lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        for line in &lines {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                match column {
                    0 => write!(out, "{cell:<width$}")?,
                    _ => write!(out, "  {cell:>width$}")?,
                }
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

impl Cell {
    pub(crate) fn named(series: usize, name: &str) -> Self {
        Self { series: Some(series), ..Self::from(name) }
    }

    pub(crate) fn with_small(mut self, small: String) -> Self {
        self.small = small;
        self
    }

    pub(crate) fn or_dash(value: Option<impl Display>) -> Self {
        value.map_or_else(|| Self::from("-"), |value| Self::from(value.to_string()))
    }

    pub(crate) fn count(count: impl Display) -> Self {
        Self::from(count.to_string())
    }

    pub(crate) fn percent(share: Option<f64>) -> Self {
        Self::or_dash(share.map(percent))
    }

    pub(crate) fn ranged(value: f64, interval: Option<Interval>) -> Self {
        let range = interval.map(|Interval { low, high }| format!("{} to {}", ms(low), ms(high)));
        Self::from(ms(value)).with_small(range.unwrap_or_default())
    }

    pub(crate) fn estimate(estimate: Option<Estimate>) -> Self {
        estimate.map_or_else(|| Self::from("-"), |known| Self::ranged(known.value, known.interval))
    }

    fn html(&self) -> String {
        let text = self.series.map(|series| swatch(series, &self.text));
        let text = text.unwrap_or_else(|| escape(&self.text));
        match self.small.as_str() {
            "" => text,
            small => format!("{text}<small>{}</small>", escape(small)),
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

impl Display for Cell {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self.small.as_str() {
            "" => write!(out, "{}", self.text),
            small => write!(out, "{} ({small})", self.text),
        }
    }
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub(super) fn swatch(series: usize, name: &str) -> String {
    let (colour, name) = (series % SERIES, escape(name));
    format!(
        "<span class=\"swatch\"><svg viewBox=\"0 0 30 10\" aria-hidden=\"true\"><path \
         class=\"line s{colour}\" d=\"M0 5H30\"/></svg>{name}</span>"
    )
}

pub(crate) fn percent(share: f64) -> String {
    match 100.0 * share {
        small if small > 0.0 && small < 0.1 => format!("{small:.3} %"),
        percent => format!("{percent:.2} %"),
    }
}

/// A number to about three digits, such as milliseconds.
pub(crate) fn ms(time: f64) -> String {
    match time {
        time if time >= 100.0 => format!("{time:.0}"),
        time if time >= 10.0 => format!("{time:.1}"),
        time => format!("{time:.2}"),
    }
}
