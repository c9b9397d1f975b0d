//! `Accept-Encoding`: which coding a client likes best.

use crate::compression::Coding;

/// Quality in thousandths, as the grammar allows three digits.
type Quality = u16;

/// Weights of the codings in one `Accept-Encoding`; `None` where it names no weight.
#[derive(Debug, Default)]
struct Liked {
    gzip: Option<Quality>,
    deflate: Option<Quality>,
    identity: Option<Quality>,
    any: Option<Quality>,
}

/// The coding liked best, gzip where two are liked as much; `None` for none of them. `values` are
/// those of all headers.
pub(crate) fn best<'a>(values: impl Iterator<Item = &'a str>) -> Option<Coding> {
    let mut liked = Liked::default();
    for element in values.flat_map(|value| value.split(',')) {
        let (name, quality) = parse(element);
        match Coding::of_name(name) {
            Some(Coding::Gzip) => liked.gzip = Some(quality),
            Some(Coding::Deflate) => liked.deflate = Some(quality),
            None if name == "*" => liked.any = Some(quality),
            None if name.eq_ignore_ascii_case("identity") => liked.identity = Some(quality),
            None => {}
        }
    }
    let quality = |own: Option<Quality>| own.or(liked.any).unwrap_or(0);
    let (gzip, deflate) = (quality(liked.gzip), quality(liked.deflate));
    let (coding, most) = if deflate > gzip {
        (Coding::Deflate, deflate)
    } else {
        (Coding::Gzip, gzip)
    };
    // A client that prefers the body as it is says so; one that says nothing of it takes it as
    // well.
    (most > 0 && most >= liked.identity.unwrap_or(0)).then_some(coding)
}

fn parse(element: &str) -> (&str, Quality) {
    let mut parts = element.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let quality =
        parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    let thousandths = |text: &str| {
        let value: f32 = text.trim().parse().ok()?;
        (0.0..=1.0)
            .contains(&value)
            .then_some((value * 1000.0) as Quality)
    };
    // One that cannot be read counts for nothing.
    (
        name,
        quality.map_or(1000, |text| thousandths(text).unwrap_or(0)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(value: &str) -> Option<Coding> {
        best(std::iter::once(value))
    }

    #[test]
    fn the_best_liked_is_chosen() {
        for none in [
            "",
            "identity",
            "br",
            "br;q=1.0, zstd",
            "gzip;q=0",
            "*;q=0",
            "gzip;q=many",
            "gzip;q=-1",
        ] {
            assert_eq!(chosen(none), None, "{none}");
        }
        for gzip in [
            "gzip",
            "GZIP",
            "x-gzip",
            "deflate, gzip",
            "gzip;q=0.001",
            "*",
            "br, gzip;q=0.5",
            "gzip ; q=1.0",
        ] {
            assert_eq!(chosen(gzip), Some(Coding::Gzip), "{gzip}");
        }
        for deflate in [
            "deflate",
            "gzip;q=0.5, deflate;q=0.6",
            "gzip;q=0, *",
            "deflate;q=0.5, gzip;q=0.4",
        ] {
            assert_eq!(chosen(deflate), Some(Coding::Deflate), "{deflate}");
        }
        assert_eq!(
            chosen("identity;q=1, gzip;q=0.5"),
            None,
            "liked better as it is"
        );
        assert_eq!(
            best(["br", "deflate"].into_iter()),
            Some(Coding::Deflate),
            "two headers"
        );
    }
}
