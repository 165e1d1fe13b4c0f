use salus_device::{Clock, ScriptedConfig, ScriptedDevice};

use super::*;

const MIB: u64 = 1 << 20;

/// Of a device with memory of its own.
fn pool(bytes_max: u64) -> (Arc<Pool>, Arc<ScriptedDevice>) {
    let device = Arc::new(ScriptedDevice::open(&ScriptedConfig {
        lanes: 1,
        capacity_bytes: MIB,
        clock: Clock::Manual,
        on_host: false,
    }));
    let pins = Pins::new(&device, bytes_max / 2);
    (Pool::new(bytes_max / 4, Some(bytes_max), pins), device)
}

fn used(pool: &Pool) -> u64 {
    pool.used_bytes().0 / MIB
}

#[test]
fn what_is_kept_gives_way_to_pages_the_oldest_first() {
    let (pool, _device) = pool(40 * MIB);
    let pages = pool.pages(&[10 * MIB, 10 * MIB, 10 * MIB]).expect("memory");
    let kept: Vec<KeptPage> = pages.into_iter().map(|page| pool.keep_page(page)).collect();
    assert_eq!(pool.used_bytes(), (30 * MIB, 30 * MIB));
    let page = pool.page(20 * MIB).expect("memory");
    assert_eq!(pool.used_bytes(), (40 * MIB, 20 * MIB));
    assert!(kept[0].take().is_none(), "the oldest is gone");
    // A page that is used again is a page like others.
    let again = kept[1].take().expect("it is still there");
    assert_eq!(pool.used_bytes(), (40 * MIB, 10 * MIB));
    pool.array_made(10 * MIB);
    assert!(kept[2].take().is_none(), "arrays in host memory count, too");
    assert_eq!(used(&pool), 40);
    pool.array_gone(10 * MIB);
    drop((page, again, kept));
    assert!(used(&pool) <= 10, "a quarter may stay warm");
}

#[test]
fn large_pages_are_free_with_their_array_and_small_ones_share() {
    let (pool, _device) = pool(400 * MIB);
    let mut pages = pool.pages(&[3 * MIB, 100, 5 * MIB, 200]).expect("memory");
    assert_eq!(
        pages.iter().map(PageMemory::len).sum::<usize>(),
        (8 << 20) + 300
    );
    let small = pages.remove(3);
    drop(pages);
    small.bytes().write(&[7; 200]);
    // What is warm is used again.
    let before = pool.used_bytes();
    let _again = pool.pages(&[3 * MIB, 5 * MIB]).expect("memory");
    assert_eq!(pool.used_bytes(), before);
    // Many small ones have several slabs.
    let many = pool.pages(&[MIB - 64; 20]).expect("memory");
    assert_eq!(many.len(), 20);
}

#[test]
fn a_page_is_kept_no_longer_than_its_array() {
    let (pool, device) = pool(40 * MIB);
    let page = pool.page(8 * MIB).expect("memory");
    assert_eq!(device.registered().ranges.len(), 1);
    let kept = pool.keep_page(page);
    drop(kept);
    assert_eq!(pool.used_bytes().1, 0);
    // Its memory is warm, and pinned; without the pool it is neither.
    assert_eq!(device.registered().ranges.len(), 1);
    drop(pool);
    assert!(device.registered().ranges.is_empty());
}

#[test]
fn no_more_is_pinned_than_may_be() {
    let (pool, device) = pool(40 * MIB);
    let pages = pool.pages(&[4 * MIB; 9]).expect("memory");
    assert_eq!(device.registered().peak_bytes as u64, 20 * MIB);
    drop((pages, pool));
    assert!(device.registered().ranges.is_empty());
}
