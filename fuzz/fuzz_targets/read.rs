//! Any bytes as a page: nothing panics, what a page says of itself adds up, and a line is read the
//! same whatever stands before it.

#![no_main]

mod limits;

use kvgauge::exposition::{Page, Sample};
use libfuzzer_sys::fuzz_target;
use limits::LIMITS;

fuzz_target!(|text: &[u8]| {
    let Ok(page) = Page::read(text, &LIMITS) else {
        return;
    };
    families_hold_every_sample(&page);
    for sample in page.all_samples() {
        labels_are_found_by_name(sample);
    }
    lines_alone_are_read_the_same(text, &page);
});

fn families_hold_every_sample(page: &Page<'_>) {
    let mut count = 0;
    for family in page.families() {
        let samples = page.family_samples(family);
        assert_eq!(samples.count(), family.sample_count());
        count += family.sample_count();
        let found = page.family(family.name()).expect("a family by its name");
        assert_eq!((found.name(), found.kind()), (family.name(), family.kind()));
        assert_eq!((found.help(), found.unit()), (family.help(), family.unit()));
    }
    assert_eq!(count, page.sample_count());
    if let Some(sample) = page.all_samples().last() {
        let same = page.samples(sample.name()).last().expect("itself");
        assert_eq!(same.value_text(), sample.value_text());
    }
}

fn labels_are_found_by_name(sample: Sample<'_, '_>) {
    for (name, value) in sample.labels() {
        assert_eq!(sample.label(name), Some(value));
    }
    assert_eq!(sample.label("no such label"), None);
}

fn lines_alone_are_read_the_same(text: &[u8], page: &Page<'_>) {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut together = page.all_samples();
    let mut line_alone = Vec::new();
    for line in text.split(|b| *b == b'\n') {
        // An empty line first: at the start of a page a byte order mark would be taken off.
        line_alone.clear();
        line_alone.push(b'\n');
        line_alone.extend_from_slice(line);
        let Ok(alone) = Page::read(&line_alone, &LIMITS) else {
            continue;
        };
        for alone in alone.all_samples() {
            let sample = together
                .next()
                .expect("a sample that the whole page has too");
            assert_eq!(alone.name(), sample.name());
            assert_eq!(alone.value_text(), sample.value_text());
            assert_eq!(alone.value().to_bits(), sample.value().to_bits());
            assert_eq!(alone.exemplar(), sample.exemplar());
            assert!(alone.labels().eq(sample.labels()));
        }
    }
    assert!(together.next().is_none(), "a sample that no line has");
}
