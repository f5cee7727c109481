//! A page in gzip, made in pieces, so that a large one does not hold up the thread it shares.

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Write};
use tokio::task::yield_now;

/// Bytes between two looks at what else there is to do: a third of a millisecond.
const PIECE: usize = 256 * 1024;

/// What pages come down to at least, to begin with.
const RATIO: usize = 12;

/// Packs a page.
///
/// At the fastest level: pages repeat themselves so much that more work gains little. A real page of
/// 260 kB takes 0.3 ms and is 13 times as small (level 6: 1.4 ms, 19 times), one of 14.5 MB 8 ms and
/// 19 times (51 ms, 26 times).
pub(super) async fn gzip(text: &[u8]) -> io::Result<Bytes> {
    let room = Vec::with_capacity(text.len() / RATIO);
    let mut encoder = GzEncoder::new(room, Compression::fast());
    for piece in text.chunks(PIECE) {
        encoder.write_all(piece)?;
        yield_now().await;
    }
    Ok(encoder.finish()?.into())
}

/// Packs what is small, and made once.
pub(super) fn gzip_whole(text: &[u8]) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text)?;
    Ok(encoder.finish()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read;

    #[tokio::test]
    async fn any_number_of_pieces_comes_back_whole() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7] {
            let text: Vec<u8> = (0..length).map(|n| (n / 7) as u8).collect();
            let packed = gzip(&text).await.unwrap();
            let mut back = Vec::new();
            GzDecoder::new(&packed[..]).read_to_end(&mut back).unwrap();
            assert_eq!(back, text, "{length}");
        }
    }
}
