//! LAPACK's routines as JAX calls them, with sizes and flags that do not fit.

use super::builder::*;

// tidy: long, because it is one list of cases, one for each function.
/// LAPACK as JAX calls it, nearly: attributes, shapes and counts are right or wrong at random.
pub(super) fn lapack(b: &mut Builder) {
    let letter = b.pick(&["s", "d", "c", "z"]);
    let element = match letter {
        "s" => "f32",
        "d" => "f64",
        "c" => "complex<f32>",
        _ => "complex<f64>",
    };
    let real = if matches!(letter, "s" | "c") {
        "f32"
    } else {
        "f64"
    };
    let (m, n) = (b.pick(&[0, 1, 2, 3, 8, 20]), b.pick(&[0, 1, 3, 8, 20]));
    let batch: Vec<i64> = if b.chance(3) {
        vec![b.pick(&[0, 1, 3])]
    } else {
        vec![]
    };
    let small = m.min(n);
    let of = |dims: &[i64]| [batch.clone(), dims.to_vec()].concat();
    let flag = |b: &mut Builder| {
        format!(
            "{} : ui8",
            b.pick(&[76, 85, 78, 84, 67, 82, 65, 83, 86, 0, 255])
        )
    };
    // Its operands, its results, its attributes.
    type Kinds<'a> = Vec<(&'a str, Vec<i64>)>;
    let (routine, operands, results, attributes): (&str, Kinds<'_>, Kinds<'_>, &[&str]) =
        match b.random.u32(..11) {
            0 => (
                "getrf",
                vec![(element, of(&[m, n]))],
                vec![
                    (element, of(&[m, n])),
                    ("i32", of(&[small])),
                    ("i32", of(&[])),
                ],
                &[],
            ),
            1 => (
                "potrf",
                vec![(element, of(&[n, n]))],
                vec![(element, of(&[n, n])), ("i32", of(&[]))],
                &["uplo"],
            ),
            2 => (
                "geqrf",
                vec![(element, of(&[m, n]))],
                vec![(element, of(&[m, n])), (element, of(&[small]))],
                &[],
            ),
            3 => (
                "trsm",
                vec![(element, of(&[m, m])), (element, of(&[m, n]))],
                vec![(element, of(&[m, n]))],
                &["side", "uplo", "trans_x", "diag"],
            ),
            4 => (
                if matches!(letter, "s" | "d") {
                    "orgqr"
                } else {
                    "ungqr"
                },
                vec![(element, of(&[m, n])), (element, of(&[small]))],
                vec![(element, of(&[m, n]))],
                &[],
            ),
            5 => (
                "gesdd",
                vec![(element, of(&[m, n]))],
                vec![
                    (element, of(&[m, n])),
                    (real, of(&[small])),
                    (element, of(&[m, m])),
                    (element, of(&[n, n])),
                    ("i32", of(&[])),
                ],
                &["mode"],
            ),
            6 => (
                if matches!(letter, "s" | "d") {
                    "syevd"
                } else {
                    "heevd"
                },
                vec![(element, of(&[n, n]))],
                vec![(element, of(&[n, n])), (real, of(&[n])), ("i32", of(&[]))],
                &["mode", "uplo"],
            ),
            7 => (
                "geev",
                vec![(element, of(&[n, n]))],
                match letter {
                    "s" => vec![
                        ("f32", of(&[n])),
                        ("f32", of(&[n])),
                        ("complex<f32>", of(&[n, n])),
                        ("complex<f32>", of(&[n, n])),
                        ("i32", of(&[])),
                    ],
                    "d" => vec![
                        ("f64", of(&[n])),
                        ("f64", of(&[n])),
                        ("complex<f64>", of(&[n, n])),
                        ("complex<f64>", of(&[n, n])),
                        ("i32", of(&[])),
                    ],
                    _ => vec![
                        (element, of(&[n])),
                        (element, of(&[n, n])),
                        (element, of(&[n, n])),
                        ("i32", of(&[])),
                    ],
                },
                &["compute_left", "compute_right"],
            ),
            8 => (
                "gtsv",
                vec![
                    (element, of(&[n])),
                    (element, of(&[n])),
                    (element, of(&[n])),
                    (element, of(&[n, m])),
                ],
                vec![
                    (element, of(&[n])),
                    (element, of(&[n])),
                    (element, of(&[n])),
                    (element, of(&[n, m])),
                    ("i32", of(&[])),
                ],
                &[],
            ),
            9 => (
                "geqp3",
                vec![(element, of(&[m, n])), ("i32", of(&[n]))],
                vec![
                    (element, of(&[m, n])),
                    ("i32", of(&[n])),
                    (element, of(&[small])),
                ],
                &[],
            ),
            _ => (
                "gehrd",
                vec![(element, of(&[n, n]))],
                vec![
                    (element, of(&[n, n])),
                    (element, of(&[(n - 1).max(0)])),
                    ("i32", of(&[])),
                ],
                &["low", "high"],
            ),
        };
    let mut written: Vec<String> = Vec::new();
    for name in attributes {
        let value = match *name {
            "low" | "high" => format!("{} : i32", b.pick(&[1, 0, -1, 3, 8, 1 << 30])),
            _ => flag(b),
        };
        written.push(format!("{name} = {value}"));
    }
    // Some of it is wrong.
    let spoil = b.random.u32(..8);
    let mut results = results;
    match spoil {
        0 => drop(written.pop()),
        1 => {
            if let Some((_, dims)) = results.last_mut() {
                dims.push(2);
            }
        }
        2 => {
            if let Some((_, dims)) = results.first_mut()
                && let Some(dim) = dims.last_mut()
            {
                *dim = (*dim - 1).max(0);
            }
        }
        3 => results[0].0 = "i32",
        _ => {}
    }
    let operands: Vec<Value> = operands
        .into_iter()
        .map(|(element, dims)| {
            b.value(
                |value| value.element == element && value.dims == dims,
                element,
                &dims,
            )
        })
        .collect();
    let layouts = |kinds: &[Vec<i64>]| {
        let texts: Vec<String> = kinds
            .iter()
            .map(|dims| {
                let mut order: Vec<i64> = (0..dims.len() as i64).rev().collect();
                if order.len() > batch.len() + 1 {
                    order.swap(0, 1);
                }
                match order.is_empty() {
                    true => "dense<> : tensor<0xindex>".to_owned(),
                    false => format!("dense<{}> : tensor<{}xindex>", list(&order), order.len()),
                }
            })
            .collect();
        texts.join(", ")
    };
    let into: Vec<Vec<i64>> = operands.iter().map(|value| value.dims.clone()).collect();
    let out: Vec<Vec<i64>> = results.iter().map(|(_, dims)| dims.clone()).collect();
    let layouts = format!(
        ", operand_layouts = [{}], result_layouts = [{}]",
        layouts(&into),
        layouts(&out)
    );
    let layouts = if b.chance(5) { String::new() } else { layouts };
    let names: Vec<&str> = operands.iter().map(|value| value.name.as_str()).collect();
    let given: Vec<String> = operands.iter().map(Value::ty).collect();
    let types: Vec<String> = results
        .iter()
        .map(|(element, dims)| tensor(element, dims))
        .collect();
    let line = format!(
        "\"stablehlo.custom_call\"({}) {{call_target_name = \"lapack_{letter}{routine}_ffi\", \
         backend_config = {{{}}}, api_version = 4 : i32{layouts}}} : ({}) -> ({})",
        names.join(", "),
        written.join(", "),
        given.join(", "),
        types.join(", ")
    );
    let kinds: Vec<(String, Vec<i64>)> = results
        .into_iter()
        .map(|(element, dims)| (element.to_owned(), dims))
        .collect();
    match kinds.len() {
        1 => drop(b.result(&line, &kinds[0].0, &kinds[0].1)),
        _ => b.results(&line, &kinds),
    }
}
