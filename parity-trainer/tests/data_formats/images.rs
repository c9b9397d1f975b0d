//! Folders and archives of images.

use super::*;

/// Width and height of the tests' images.
const SIZE: (u32, u32) = (3, 2);

fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// Every pixel is `(x, y, tint)`.
fn coloured(tint: u8) -> Vec<u8> {
    let image = RgbImage::from_fn(SIZE.0, SIZE.1, |x, y| image::Rgb([x as u8, y as u8, tint]));
    encoded(image, ImageFormat::Png)
}

fn grey(light: u8) -> Vec<u8> {
    encoded(
        GrayImage::from_pixel(SIZE.0, SIZE.1, image::Luma([light])),
        ImageFormat::Png,
    )
}

/// Two classes, not in the order of their names.
fn pictures() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("train/dog/1.png", coloured(1)),
        ("train/cat/1.png", coloured(2)),
        ("train/dog/2.png", coloured(3)),
        ("test/cat/1.png", coloured(4)),
        ("test/dog/1.png", coloured(5)),
    ]
}

fn tint(image: &[f32]) -> u8 {
    (image[12] * 255.0).round() as u8
}

fn tints(samples: &Samples) -> Vec<(u8, u8)> {
    (0..samples.len())
        .map(|index| (tint(samples.sample(index)), samples.labels[index]))
        .collect()
}

#[test]
fn an_image_folder_is_read_in_the_order_of_names() {
    let mut files = pictures();
    files.extend([("train/dog/.DS_Store", vec![0]), ("LICENSE", vec![1])]);
    let folder = folder_with(&files);
    let mut told = Vec::new();
    let data = DataSet::load_with(folder.path(), &mut |progress| told.push(progress)).unwrap();
    assert_eq!(data.train.shape, [3, 2, 3]);
    assert_eq!(
        (data.classes, data.class_names.as_slice()),
        (2, ["cat".to_owned(), "dog".to_owned()].as_slice())
    );
    assert_eq!(tints(&data.train), [(2, 0), (1, 1), (3, 1)]);
    assert_eq!(tints(&data.test), [(4, 0), (5, 1)]);
    let columns: Vec<f32> = [0, 1, 2, 0, 1, 2]
        .iter()
        .map(|&x| x as f32 / 255.0)
        .collect();
    assert_eq!(data.train.sample(0)[..6], columns);
    assert_eq!(
        told.last(),
        Some(&LoadProgress {
            samples: 5,
            total: Some(5)
        })
    );
}

#[test]
fn archives_hold_the_same_and_keep_their_order() {
    for (name, contents) in [
        ("a.tar", archive(&pictures())),
        ("a.tar.gz", gzip(&archive(&pictures()))),
    ] {
        let folder = folder_with(&[(name, contents), ("notes.txt", vec![])]);
        let data = DataSet::load(folder.path()).unwrap();
        assert_eq!(data.class_names, ["cat", "dog"]);
        assert_eq!(tints(&data.train), [(1, 1), (2, 0), (3, 1)]);
        assert_eq!(tints(&data.test), [(4, 0), (5, 1)]);
        assert_eq!(
            data.sha256,
            DataSet::load(&folder.path().join(name)).unwrap().sha256
        );
    }
}

#[test]
fn more_images_than_one_batch_keep_their_order() {
    let names: Vec<String> = (0..1100)
        .map(|index| format!("train/{}/{index:04}.png", index % 7))
        .collect();
    let mut files: Vec<(&str, Vec<u8>)> = names
        .iter()
        .enumerate()
        .map(|(index, name)| (name.as_str(), coloured((index % 250) as u8)))
        .collect();
    files.push(("test/3/0.png", coloured(9)));
    let folder = folder_with(&[("a.tar", archive(&files))]);
    let mut told = Vec::new();
    let data =
        DataSet::load_with(folder.path(), &mut |progress| told.push(progress.samples)).unwrap();
    assert_eq!((data.train.len(), data.classes), (1100, 7));
    let wanted: Vec<(u8, u8)> = (0..1100)
        .map(|index| ((index % 250) as u8, (index % 7) as u8))
        .collect();
    assert_eq!(tints(&data.train), wanted);
    assert!(told.len() > 3 && told.is_sorted(), "{told:?}");
}

#[test]
fn jpeg_images_and_grey_ones() {
    let jpeg = encoded(
        GrayImage::from_pixel(8, 8, image::Luma([200])),
        ImageFormat::Jpeg,
    );
    let files = [
        ("train/a/1.jpg", jpeg.clone()),
        ("train/b/1.JPEG", jpeg.clone()),
        ("test/a/1.jpg", jpeg),
    ];
    let data = DataSet::load(folder_with(&files).path()).unwrap();
    assert_eq!(data.train.shape, [1, 8, 8]);
    assert!(
        data.train
            .values
            .iter()
            .all(|value| (value - 200.0 / 255.0).abs() < 0.02)
    );
}

#[test]
fn grey_images_among_coloured_ones_become_coloured() {
    let files = [
        ("train/a/1.png", grey(51)),
        ("train/a/2.png", coloured(7)),
        ("train/a/3.png", grey(255)),
        ("test/a/1.png", coloured(8)),
    ];
    let data = DataSet::load(folder_with(&files).path()).unwrap();
    assert_eq!(data.train.shape, [3, 2, 3]);
    assert_eq!(data.train.sample(0), [0.2; 18]);
    assert_eq!(tints(&data.train), [(51, 0), (7, 0), (255, 0)]);
}

#[test]
fn image_folders_that_cannot_be_used_are_named() {
    let with = |name: &'static str, contents: Vec<u8>| {
        let mut files = pictures();
        files.push((name, contents));
        complaint(&files)
    };
    let larger = encoded(RgbImage::new(4, 2), ImageFormat::Png);
    let message = with("train/dog/9.png", larger);
    assert!(
        message.contains("train/dog/9.png: is 4 x 2 pixels, those before it are 3 x 2"),
        "{message}"
    );
    let message = with("train/dog/9.png", coloured(1)[..40].to_vec());
    assert!(
        message.contains("train/dog/9.png: ") && message.contains("png or jpeg"),
        "{message}"
    );
    let message = with("train/dog/9.gif", vec![1]);
    assert!(
        message.contains("9.gif: is neither a png nor a jpeg file"),
        "{message}"
    );
    let message = with("train/9.png", coloured(1));
    assert!(
        message.contains("9.png: lies in no class's folder"),
        "{message}"
    );
    let message = with("test/bird/9.png", coloured(1));
    assert!(message.contains("no class \"bird\""), "{message}");

    let folder = folder_with(&pictures());
    fs::create_dir(folder.path().join("train/bird")).unwrap();
    let message = DataSet::load(folder.path()).unwrap_err().to_string();
    assert!(message.contains("train/bird: has no images"), "{message}");
}

#[test]
fn images_may_come_without_labels() {
    let files = || -> Vec<(&str, Vec<u8>)> {
        vec![
            ("train/b.png", coloured(1)),
            ("train/a.png", coloured(2)),
            ("test/c.png", coloured(3)),
        ]
    };
    let unlabelled = |files: &[(&str, Vec<u8>)]| DataSet::load(folder_with(files).path()).unwrap();
    let folder = unlabelled(&files());
    let tar = unlabelled(&[("a.tar.gz", gzip(&archive(&files())))]);
    for data in [&folder, &tar] {
        assert_eq!((data.train.len(), data.test.len(), data.classes), (2, 1, 0));
        assert!(!data.is_labelled() && data.train.labels.is_empty());
        assert_eq!(data.test.sample(0), folder.test.sample(0));
    }
    assert_eq!(tint(folder.train.sample(0)), 2, "in the order of the names");

    // These have no split.
    let names: Vec<String> = (10..32).map(|at| format!("{at}.png")).collect();
    let flat: Vec<(&str, Vec<u8>)> = names
        .iter()
        .enumerate()
        .map(|(at, name)| (name.as_str(), coloured(at as u8)))
        .collect();
    let data = unlabelled(&flat);
    assert_eq!((data.train.len(), data.test.len()), (20, 2));
    assert_eq!(
        (tint(data.test.sample(0)), tint(data.test.sample(1))),
        (9, 19)
    );
    let message = complaint(&flat[..9]);
    assert!(
        message.contains("has 9 samples, at least 10 are needed"),
        "{message}"
    );

    let mut mixed = files();
    mixed.push(("train/cat/1.png", coloured(4)));
    let message = complaint(&mixed);
    assert!(
        message.contains("train/a.png: lies in no class's folder"),
        "{message}"
    );
    let message = complaint(&[("a.tar", archive(&mixed))]);
    assert!(
        message.contains("cat/1.png: lies in a class's folder, images before it in none"),
        "{message}"
    );
}

#[test]
fn archives_that_cannot_be_used_are_named() {
    let whole = gzip(&archive(&pictures()));
    for cut in [20, whole.len() / 2, whole.len() - 6] {
        let message = complaint(&[("a.tar.gz", whole[..cut].to_vec())]);
        assert!(
            message.contains("a.tar.gz: truncated or damaged"),
            "{message}"
        );
    }
    let message = complaint(&[("a.tar", archive(&pictures())[..600].to_vec())]);
    assert!(message.contains("a.tar: truncated or damaged"), "{message}");
    let mut files = pictures();
    files.push(("train/bird/", vec![]));
    let message = complaint(&[("a.tar", archive(&files))]);
    assert!(
        message.contains("a.tar/train/bird: has no images"),
        "{message}"
    );
    let message = complaint(&[("a.tar", archive(&[("notes.txt", vec![1])]))]);
    assert!(message.contains("a.tar/train: has 0 samples"), "{message}");
}
