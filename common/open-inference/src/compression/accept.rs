//! `Accept-Encoding`: which coding a client likes best.

use crate::compression::Coding;

/// The coding liked best, gzip where two are liked as much; `None` for none of them. `values` are
/// those of all headers.
pub(crate) fn best<'a>(values: impl Iterator<Item = &'a str>) -> Option<Coding> {
    let (mut gzip, mut deflate, mut identity, mut any) = (None, None, None, None);
    for element in values.flat_map(|value| value.split(',')) {
        let (name, quality) = parse(element);
        let named = match Coding::of_name(name) {
            Some(Coding::Gzip) => &mut gzip,
            Some(Coding::Deflate) => &mut deflate,
            None if name == "*" => &mut any,
            None if name.eq_ignore_ascii_case("identity") => &mut identity,
            None => continue,
        };
        *named = Some(quality);
    }
    let [gzip, deflate] = [gzip, deflate].map(|own| own.or(any).unwrap_or(0.0));
    let (coding, most) = match deflate > gzip {
        true => (Coding::Deflate, deflate),
        false => (Coding::Gzip, gzip),
    };
    // A client that prefers the body as it is says so; one that says nothing of it takes it as
    // well.
    (most > 0.0 && most >= identity.unwrap_or(0.0)).then_some(coding)
}

/// Name and quality of an element. A quality that cannot be read counts for nothing.
fn parse(element: &str) -> (&str, f32) {
    let mut parts = element.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let quality = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
    let quality = quality.map_or(Ok(1.0), |text| text.trim().parse());
    let is_valid = |quality: &f32| (0.0..=1.0).contains(quality);
    (name, quality.ok().filter(is_valid).unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_liked_is_chosen() {
        let (gzip, deflate) = (Some(Coding::Gzip), Some(Coding::Deflate));
        for (value, chosen) in [
            ("", None),
            ("identity", None),
            ("br", None),
            ("br;q=1.0, zstd", None),
            ("gzip;q=0", None),
            ("*;q=0", None),
            ("gzip;q=many", None),
            ("gzip;q=-1", None),
            ("identity;q=1, gzip;q=0.5", None),
            ("gzip", gzip),
            ("GZIP", gzip),
            ("x-gzip", gzip),
            ("deflate, gzip", gzip),
            ("gzip;q=0.001", gzip),
            ("*", gzip),
            ("br, gzip;q=0.5", gzip),
            ("gzip ; q=1.0", gzip),
            ("deflate", deflate),
            ("gzip;q=0.5, deflate;q=0.6", deflate),
            ("gzip;q=0, *", deflate),
            ("deflate;q=0.5, gzip;q=0.4", deflate),
        ] {
            assert_eq!(best(std::iter::once(value)), chosen, "{value}");
        }
        let two_headers = ["br", "deflate"].into_iter();
        assert_eq!(best(two_headers), deflate);
    }
}
