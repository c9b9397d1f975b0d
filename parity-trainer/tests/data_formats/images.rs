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

fn grey(width: u32, height: u32, light: u8, format: ImageFormat) -> Vec<u8> {
    let image = GrayImage::from_pixel(width, height, image::Luma([light]));
    encoded(image, format)
}

/// Two classes, not in the order of their names.
fn pictures() -> Files<'static> {
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

/// Tint and label of each image.
fn tints(samples: &Samples) -> Vec<(u8, u8)> {
    let images = samples.values.chunks(18).map(tint);
    images.zip(samples.labels.iter().copied()).collect()
}

#[test]
fn an_image_folder_is_read_in_the_order_of_names() {
    let mut files = pictures();
    files.extend([("train/dog/.DS_Store", vec![0]), ("LICENSE", vec![1])]);
    let folder = folder_with(&files);
    let mut told = Vec::new();
    let mut progress = |samples, total| told.push((samples, total));
    let data = DataSet::load_with(folder.path(), &mut progress).unwrap();
    assert_eq!(data.train.shape, [3, 2, 3]);
    assert_eq!(data.classes, 2);
    assert_eq!(data.class_names, ["cat", "dog"]);
    assert_eq!(tints(&data.train), [(2, 0), (1, 1), (3, 1)]);
    assert_eq!(tints(&data.test), [(4, 0), (5, 1)]);
    let columns = [0.0, 1.0, 2.0, 0.0, 1.0, 2.0].map(|x: f32| x / 255.0);
    assert_eq!(data.train.sample(0)[..6], columns);
    assert_eq!(told.last(), Some(&(5, Some(5))));
}

#[test]
fn archives_hold_the_same_and_keep_their_order() {
    let tar = archive(&pictures());
    for (name, contents) in [("a.tar", tar.clone()), ("a.tar.gz", gzip(&tar))] {
        let folder = folder_with(&[(name, contents), ("notes.txt", vec![])]);
        let data = DataSet::load(folder.path()).unwrap();
        assert_eq!(data.class_names, ["cat", "dog"]);
        assert_eq!(tints(&data.train), [(1, 1), (2, 0), (3, 1)]);
        assert_eq!(tints(&data.test), [(4, 0), (5, 1)]);
        let file = DataSet::load(&folder.path().join(name)).unwrap();
        assert_eq!(data.sha256, file.sha256);
    }
}

#[test]
fn more_images_than_one_batch_keep_their_order() {
    let wanted: Vec<(u8, u8)> = (0..1100).map(|at| ((at % 250) as u8, (at % 7) as u8)).collect();
    let names = wanted.iter().zip(0..).map(|((_, class), at)| format!("train/{class}/{at:04}.png"));
    let names: Vec<String> = names.collect();
    let images = wanted.iter().map(|(tint, _)| coloured(*tint));
    let mut files: Files<'_> = names.iter().map(String::as_str).zip(images).collect();
    files.push(("test/3/0.png", coloured(9)));
    let folder = folder_with(&[("a.tar", archive(&files))]);
    let mut told = Vec::new();
    let mut progress = |samples, _| told.push(samples);
    let data = DataSet::load_with(folder.path(), &mut progress).unwrap();
    assert_eq!(data.classes, 7);
    assert_eq!(tints(&data.train), wanted);
    assert!(told.len() > 3 && told.is_sorted(), "{told:?}");
}

#[test]
fn grey_jpeg_images_have_one_channel() {
    let jpeg = grey(8, 8, 200, ImageFormat::Jpeg);
    let names = ["train/a/1.jpg", "train/b/1.JPEG", "test/a/1.jpg"];
    let data = load(&names.map(|name| (name, jpeg.clone())));
    assert_eq!(data.train.shape, [1, 8, 8]);
    let is_close = |value: &f32| (value - 200.0 / 255.0).abs() < 0.02;
    assert!(data.train.values.iter().all(is_close));
}

#[test]
fn grey_images_among_coloured_ones_become_coloured() {
    let grey = |light| grey(SIZE.0, SIZE.1, light, ImageFormat::Png);
    let data = load(&[
        ("train/a/1.png", grey(51)),
        ("train/a/2.png", coloured(7)),
        ("train/a/3.png", grey(255)),
        ("test/a/1.png", coloured(8)),
    ]);
    assert_eq!(data.train.shape, [3, 2, 3]);
    assert_eq!(data.train.sample(0), [0.2; 18]);
    assert_eq!(tints(&data.train), [(51, 0), (7, 0), (255, 0)]);
}

#[test]
fn image_folders_that_cannot_be_used_are_named() {
    let with = |name: &'static str, contents: Vec<u8>, parts: &str| {
        let mut files = pictures();
        files.push((name, contents));
        assert_files_refused(&files, parts);
    };
    let larger = encoded(RgbImage::new(4, 2), ImageFormat::Png);
    let problem = "train/dog/9.png: is 4 x 2 pixels, those before it are 3 x 2";
    with("train/dog/9.png", larger, problem);
    let torn = coloured(1)[..40].to_vec();
    with("train/dog/9.png", torn, "train/dog/9.png: |png or jpeg");
    let problem = "9.gif: is neither a png nor a jpeg file";
    with("train/dog/9.gif", vec![1], problem);
    let problem = "9.png: lies in no class's folder";
    with("train/9.png", coloured(1), problem);
    with("test/bird/9.png", coloured(1), "no class \"bird\"");

    let folder = folder_with(&pictures());
    fs::create_dir(folder.path().join("train/bird")).unwrap();
    assert_refused(folder.path(), "train/bird: has no images");
}

#[test]
fn images_may_come_without_labels() {
    let files =
        [("train/b.png", coloured(1)), ("train/a.png", coloured(2)), ("test/c.png", coloured(3))];
    let folder = load(&files);
    let tar = load(&[("a.tar.gz", gzip(&archive(&files)))]);
    for data in [&folder, &tar] {
        assert_eq!((data.train.len(), data.test.len(), data.classes), (2, 1, 0));
        assert!(!data.is_labelled() && data.train.labels.is_empty());
        assert_eq!(tint(data.test.sample(0)), 3);
    }
    assert_eq!(tint(folder.train.sample(0)), 2, "in the order of the names");

    let mixed = [files.as_slice(), &[("train/cat/1.png", coloured(4))]].concat();
    assert_files_refused(&mixed, "train/a.png: lies in no class's folder");
    let before = "train/b.png: lies in no class's folder";
    assert_files_refused(&[("a.tar", archive(&mixed))], before);
}

#[test]
fn of_images_without_a_split_every_tenth_is_for_the_test() {
    let names: Vec<String> = (10..32).map(|at| format!("{at}.png")).collect();
    let images = (0..22).map(coloured);
    let flat: Files<'_> = names.iter().map(String::as_str).zip(images).collect();
    let data = load(&flat);
    assert_eq!(data.train.len(), 20);
    let test: Vec<u8> = data.test.values.chunks(18).map(tint).collect();
    assert_eq!(test, [9, 19]);
    assert_files_refused(&flat[..9], "has 9 samples, at least 10 are needed");
}

#[test]
fn archives_that_cannot_be_used_are_named() {
    let tar = archive(&pictures());
    let whole = gzip(&tar);
    for cut in [20, whole.len() / 2, whole.len() - 6] {
        let torn = [("a.tar.gz", whole[..cut].to_vec())];
        assert_files_refused(&torn, "a.tar.gz: truncated or damaged");
    }
    let torn = [("a.tar", tar[..600].to_vec())];
    assert_files_refused(&torn, "a.tar: truncated or damaged");
    let mut files = pictures();
    files.push(("train/bird/", vec![]));
    let empty_class = "a.tar/train/bird: has no images";
    assert_files_refused(&[("a.tar", archive(&files))], empty_class);
    let no_images = archive(&[("notes.txt", vec![1])]);
    assert_files_refused(&[("a.tar", no_images)], "a.tar/train: has 0 samples");
}
