//! A report's contents, which are written once and shown as plain text or as one HTML file with
//! its style and plots inside.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;
use serde_json::Value;

use crate::compare::{Estimate, Interval};

pub(super) const SERIES: usize = 7;

const STYLE: &str = include_str!("page.css");

#[derive(Default)]
pub(crate) struct Page {
    title: String,
    parts: Vec<Part>,
}

enum Part {
    Banner(&'static str, String),
    Headline(String),
    Warnings(Vec<String>),
    Table {
        title: &'static str,
        table: Table,
        note: &'static str,
    },
    Facts(&'static str, Vec<(String, String)>),
    Figure(String),
}

impl Page {
    pub(crate) fn new(title: String) -> Self {
        let parts = Vec::new();
        Self { title, parts }
    }

    /// Adds a box that stands out, with a word before its text.
    pub(crate) fn banner(&mut self, word: &'static str, text: impl Into<String>) {
        self.parts.push(Part::Banner(word, text.into()));
    }

    pub(crate) fn headline(&mut self, text: String) {
        self.parts.push(Part::Headline(text));
    }

    pub(crate) fn warnings(&mut self, texts: impl Iterator<Item = String>) {
        self.parts.push(Part::Warnings(texts.collect()));
    }

    /// Adds a table, unless it has no rows.
    pub(crate) fn table(&mut self, title: &'static str, table: Table, note: &'static str) {
        if !table.rows.is_empty() {
            self.parts.push(Part::Table { title, table, note });
        }
    }

    pub(crate) fn facts<N: Into<String>>(
        &mut self,
        title: &'static str,
        facts: impl IntoIterator<Item = (N, String)>,
    ) {
        let facts = facts.into_iter().map(|(name, value)| (name.into(), value));
        let facts: Vec<(String, String)> = facts.collect();
        if !facts.is_empty() {
            self.parts.push(Part::Facts(title, facts));
        }
    }

    /// Adds the fields of `value` that have one.
    pub(crate) fn fields(&mut self, title: &'static str, value: &impl Serialize) {
        let mut facts = Vec::new();
        collect_fields(
            "",
            &serde_json::to_value(value).unwrap_or_default(),
            &mut facts,
        );
        self.facts(title, facts);
    }

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
        self.parts.push(Part::Figure(format!(
            "<figure>\n<h2>{title}</h2>\n{legend}{plots}\
             <figcaption>{note}</figcaption>\n</figure>\n"
        )));
    }

    pub(super) fn html(&self) -> String {
        let title = escape(&self.title);
        let body: String = self.parts.iter().map(Part::html).collect();
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
        writeln!(out, "{}", self.title)?;
        for part in &self.parts {
            match part {
                Part::Banner(word, text) => writeln!(out, "{word}: {text}")?,
                Part::Headline(text) => writeln!(out, "{text}")?,
                Part::Warnings(texts) => {
                    let mut texts = texts.iter();
                    texts.try_for_each(|text| writeln!(out, "warning: {text}"))?;
                }
                Part::Table { title, table, note } => {
                    write!(out, "\n{title}\n{table}")?;
                    if !note.is_empty() {
                        writeln!(out, "{note}")?;
                    }
                }
                Part::Facts(title, facts) => {
                    writeln!(out, "\n{title}")?;
                    let mut facts = facts.iter();
                    facts.try_for_each(|(name, value)| writeln!(out, "  {name}: {value}"))?;
                }
                Part::Figure(_) => {}
            }
        }
        Ok(())
    }
}

impl Part {
    fn html(&self) -> String {
        match self {
            Self::Banner(word, text) => {
                let text = escape(text);
                format!("<p class=\"banner\"><strong>{word}</strong> {text}</p>\n")
            }
            Self::Headline(text) => format!("<p class=\"headline\">{}</p>\n", escape(text)),
            Self::Warnings(texts) if texts.is_empty() => String::new(),
            Self::Warnings(texts) => {
                let items = texts.iter();
                let items = items.map(|text| format!("<li>{}</li>\n", escape(text)));
                let items: String = items.collect();
                format!("<h2>Warnings</h2>\n<ul class=\"warnings\">\n{items}</ul>\n")
            }
            Self::Table { title, table, note } => {
                let (table, note) = (table.html(), escape(note));
                format!("<h2>{title}</h2>\n{table}<p class=\"note\">{note}</p>\n")
            }
            Self::Facts(title, facts) => {
                let facts = facts.iter().map(|(name, value)| {
                    format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value))
                });
                let facts: String = facts.collect();
                format!("<h2>{title}</h2>\n<dl>\n{facts}</dl>\n")
            }
            Self::Figure(html) => html.clone(),
        }
    }
}

fn collect_fields(name: &str, value: &Value, facts: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = format!("{name} {}", field.replace('_', " "));
                collect_fields(name.trim(), value, facts);
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
        let header = header.into_iter().map(Into::into).collect();
        let rows = Vec::new();
        Self { header, rows }
    }

    pub(crate) fn row(&mut self, name: impl Into<Cell>, cells: impl IntoIterator<Item = Cell>) {
        let name = std::iter::once(name.into());
        self.rows.push(name.chain(cells).collect());
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
        let header = self.header.clone();
        let rows = self.rows.iter();
        let rows = rows.map(|cells| cells.iter().map(Cell::to_string).collect());
        let lines: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
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
        let series = Some(series);
        Self {
            series,
            ..Self::from(name)
        }
    }

    pub(crate) fn with_small(mut self, small: String) -> Self {
        self.small = small;
        self
    }

    pub(super) fn with_mark(mut self, mark: &str) -> Self {
        self.text.push_str(mark);
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
        let ranged = estimate.map(|estimate| Self::ranged(estimate.value, estimate.interval));
        ranged.unwrap_or_else(|| Self::from("-"))
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
        let text = text.into();
        Self {
            text,
            ..Self::default()
        }
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

/// Text with what HTML would read otherwise.
pub(super) fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
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
