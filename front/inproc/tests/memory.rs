//! The caller's own memory: vectors, several of them, buffers of a pool. It is filled where it
//! lies, and comes back as it was.

mod bed;

use bed::{Folder, seed};
use weir::{Bio, Buf, BufPool, Data, Disk, Session, Status, Turner};
use weir_bio::Prng;

/// Vectors of these lengths with random bytes, and where they lie.
fn vecs(lengths: &[usize], prng: &mut Prng) -> (Vec<Vec<u8>>, Vec<*const u8>) {
    let vecs: Vec<Vec<u8>> = lengths
        .iter()
        .map(|len| {
            let mut vec = vec![0; *len];
            prng.fill(&mut vec);
            vec
        })
        .collect();
    let places = vecs.iter().map(|vec| vec.as_ptr()).collect();
    (vecs, places)
}

fn carry_out<T: Turner>(session: &mut Session<T>, bio: Bio) -> Data {
    let mut data = Data::None;
    session.submit(bio);
    while session.in_flight() > 0 {
        session.wait(|ended| {
            assert_eq!(ended.status, Status::Ok);
            data = ended.data;
        });
    }
    data
}

/// Writes vectors and reads them back into others of another shape.
fn vectors_go_out_and_in<T: Turner>(session: &mut Session<T>, prng: &mut Prng, is_null: bool) {
    for (out, into) in [
        (&[4096][..], &[4096][..]),
        // In all four blocks, cut where no block ends.
        (&[100, 8092, 0, 8192], &[1, 4095, 12000, 288]),
        // More pieces than a request may have, and more bytes.
        (&[512; 2048], &[1 << 20]),
    ] {
        let (vecs_out, places) = vecs(out, prng);
        let written = vecs_out.concat();
        let data = carry_out(session, Bio::write_from(64, vecs_out));
        let back = data.into_vecs().expect("the vectors");
        assert_eq!(back.iter().map(|vec| vec.as_ptr()).collect::<Vec<_>>(), places);
        assert!(back.concat() == written, "a write changes nothing");
        let (vecs_in, places) = vecs(into, prng);
        let data = carry_out(session, Bio::read_into(64, vecs_in));
        let back = data.into_vecs().expect("the vectors");
        assert_eq!(back.iter().map(|vec| vec.as_ptr()).collect::<Vec<_>>(), places);
        let expected = if is_null { vec![0; written.len()] } else { written };
        assert!(back.concat() == expected, "read into {} vectors", into.len());
    }
}

#[test]
fn vectors_are_filled_where_they_lie_and_come_back_as_they_were() {
    let mut prng = Prng::new(seed());
    let folder = Folder::new();
    let file = format!("file:{},size=4M", folder.join("disk").display());
    for target in ["ram:4MiB", "null:4MiB", &file, "ram:4MiB,queue_mode=sq"] {
        let disk = Disk::open(target).unwrap();
        let is_null = target.starts_with("null");
        vectors_go_out_and_in(&mut disk.session().unwrap(), &mut prng, is_null);
        disk.close().unwrap();
        let mut session = Disk::builder(target).open_inline().unwrap();
        vectors_go_out_and_in(&mut session, &mut prng, is_null);
        session.close().unwrap();
    }
}

#[test]
fn a_read_of_a_hole_fills_vectors_with_zeros() {
    let disk = Disk::open("ram:1MiB").unwrap();
    let ended = disk.start(Bio::read_into(8, vec![7; 8192])).wait();
    let back = ended.into_result().unwrap().into_vecs().unwrap();
    assert!(back.concat() == vec![0; 8192]);
    disk.close().unwrap();
}

#[test]
fn vectors_that_are_no_whole_blocks_are_refused_and_come_back() {
    let disk = Disk::open("ram:1MiB").unwrap();
    let ended = disk.start(Bio::write_from(0, vec![7; 1000])).wait();
    assert_eq!(ended.status, Status::Inval);
    assert_eq!(ended.data.into_vecs().unwrap(), [vec![7; 1000]]);
    disk.close().unwrap();
    let ended = disk.start(Bio::write_from(0, vec![7; 512])).wait();
    assert_eq!(ended.status, Status::Offline);
    assert_eq!(ended.data.into_vecs().unwrap(), [vec![7; 512]]);
}

#[test]
fn buffers_of_a_pool_go_round_and_are_free_again_when_all_has_ended() {
    let folder = Folder::new();
    let file = format!("file:{},size=1M", folder.join("disk").display());
    let pool = BufPool::new(4096, 8);
    for target in ["ram:1MiB", "null:1MiB", &file] {
        let mut session = Disk::builder(target).open_inline().unwrap();
        let (mut sent, mut ended) = (0_u64, 0);
        while ended < 100 {
            while sent < 100
                && let Some(mut buf) = pool.take()
            {
                buf.fill(sent as u8);
                session.submit(Bio::write(sent * 8, buf));
                sent += 1;
            }
            session.wait(|completion| {
                assert_eq!(completion.status, Status::Ok);
                ended += 1;
            });
        }
        assert_eq!((pool.free(), sent), (8, 100), "{target}");
        session.close().unwrap();
    }
    let whole: Vec<Buf> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!(whole.len(), 8);
}
