//! The page around the plots.

/// Colours that there are; further series begin again.
pub(super) const SERIES: usize = 7;

const STYLE: &str = include_str!("page.css");

/// Text with what HTML would read otherwise.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

pub(super) fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light \
         dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n"
    )
}

/// Returns a box that stands out.
pub(super) fn banner(class: &str, word: &str, text: &str) -> String {
    format!(
        "<p class=\"banner {class}\"><strong>{}</strong> {}</p>\n",
        escape(word),
        escape(text)
    )
}

pub(super) fn warnings(texts: impl Iterator<Item = impl AsRef<str>>) -> String {
    let items: String = texts
        .map(|text| format!("<li>{}</li>\n", escape(text.as_ref())))
        .collect();
    if items.is_empty() {
        return items;
    }
    format!("<h2>Warnings</h2>\n<ul class=\"warnings\">\n{items}</ul>\n")
}

/// A table; the first column names the rows, and cells are HTML.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: String = header
        .iter()
        .map(|cell| format!("<th scope=\"col\">{cell}</th>"))
        .collect();
    let row = |cells: &Vec<String>| {
        let cells = cells.iter().enumerate().map(|(place, cell)| {
            if place == 0 {
                format!("<th scope=\"row\">{cell}</th>")
            } else {
                format!("<td>{cell}</td>")
            }
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = rows.iter().map(row).collect();
    format!(
        "<div class=\"wide\"><table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{rows}</tbody>\n\
         </table></div>\n"
    )
}

/// A plot with its title, its legend and a word on how to read it.
pub(super) fn figure(title: &str, legend: &[(usize, &str)], plots: &str, note: &str) -> String {
    let entries: String = legend
        .iter()
        .map(|(series, name)| swatch(*series, name))
        .collect();
    let legend = if entries.is_empty() {
        entries
    } else {
        format!("<p class=\"legend\">{entries}</p>\n")
    };
    format!(
        "<figure>\n<h2>{}</h2>\n{legend}{plots}<figcaption>{}</figcaption>\n</figure>\n",
        escape(title),
        escape(note)
    )
}

pub(super) fn swatch(series: usize, name: &str) -> String {
    format!(
        "<span class=\"swatch\"><svg viewBox=\"0 0 30 10\" aria-hidden=\"true\"><path \
            class=\"line s{}\" d=\"M0 5H30\"/>\
         </svg>{}</span>",
        series % SERIES,
        escape(name)
    )
}

pub(super) fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let facts = facts.into_iter();
    let facts = facts
        .map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(&value)));
    format!("<dl>\n{}</dl>\n", facts.collect::<String>())
}

pub(super) fn or_none(value: Option<String>) -> String {
    value.unwrap_or_else(|| "none".to_owned())
}

/// Milliseconds to about three digits.
pub(super) fn ms(time: f64) -> String {
    match time {
        time if time >= 100.0 => format!("{time:.0}"),
        time if time >= 10.0 => format!("{time:.1}"),
        time => format!("{time:.2}"),
    }
}
