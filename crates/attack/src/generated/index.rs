//! Operations that compute where they read or write: sorts, gathers, scatters, dynamic slices, sizes.

use super::builder::*;

/// Comparators that are orders, and many that are none.
fn comparator(b: &mut Builder, operands: &[Value]) -> String {
    let mut taken = Vec::new();
    for (index, operand) in operands.iter().enumerate() {
        let ty = tensor(&operand.element, &[]);
        taken.push(format!("%a{index}: {ty}, %b{index}: {ty}"));
    }
    let first = &operands[b.random.usize(..operands.len())];
    let at = operands
        .iter()
        .position(|one| one.name == first.name)
        .unwrap_or(0);
    let ty = tensor(&first.element, &[]);
    let compare = |direction: &str, x: &str, y: &str| {
        format!("stablehlo.compare {direction}, {x}, {y} : ({ty}, {ty}) -> tensor<i1>")
    };
    let (x, y) = (format!("%a{at}"), format!("%b{at}"));
    let direction = b.pick(&["LT", "LE", "GE", "GT", "EQ", "NE"]);
    let body = match b.random.u32(..7) {
        0 => "%r = stablehlo.constant dense<true> : tensor<i1>".to_owned(),
        1 => "%r = stablehlo.constant dense<false> : tensor<i1>".to_owned(),
        // True of NaNs alone.
        2 => format!("%r = {}", compare("NE", &x, &x)),
        // Compares the keys of one with the other's, turned about.
        3 => format!(
            "%q = {}\n    %s = {}\n    %r = stablehlo.xor %q, %s : tensor<i1>",
            compare("LT", &x, &y),
            compare("GE", &x, &x)
        ),
        _ => format!("%r = {}", compare(direction, &x, &y)),
    };
    format!(
        "({{\n    ^bb0({}):\n    {body}\n    stablehlo.return %r : tensor<i1>\n  }})",
        taken.join(", ")
    )
}

pub(super) fn sort(b: &mut Builder) {
    let key = b.value(
        |value| value.rank() > 0 && !value.is_complex(),
        "i32",
        &[4096],
    );
    let mut operands = vec![key.clone()];
    for _ in 0..b.pick(&[0, 0, 1, 1, 2, 4, 9]) {
        let element = b.element();
        operands.push(b.value(|value| value.dims == key.dims, &element, &key.dims));
    }
    let dimension = b.random.usize(..key.rank());
    let compare = comparator(b, &operands);
    let stable = b.chance(3);
    let names: Vec<&str> = operands.iter().map(|one| one.name.as_str()).collect();
    let types: Vec<String> = operands.iter().map(Value::ty).collect();
    let types = types.join(", ");
    let line = format!(
        "\"stablehlo.sort\"({}) {compare} {{dimension = {dimension} : i64, is_stable = {stable}}} : ({types}) -> ({types})",
        names.join(", ")
    );
    let kinds: Vec<_> = operands
        .iter()
        .map(|one| (one.element.clone(), one.dims.clone()))
        .collect();
    match kinds.len() {
        1 => drop(b.result(&line, &kinds[0].0, &kinds[0].1)),
        _ => b.results(&line, &kinds),
    }
}

/// Indices into rows of something, far out of range as a rule.
fn indices(b: &mut Builder, count: i64, columns: i64) -> Value {
    let element = b.pick(&["i32", "i64", "i8", "ui32", "ui64", "i16", "ui8"]);
    let dims = [count, columns];
    let counted = b.value(
        |value| value.element == element && value.dims == dims,
        element,
        &dims,
    );
    let factor = b.index_scalar(element);
    let ty = tensor(element, &dims);
    let spread = b.set(
        &format!(
            "stablehlo.broadcast_in_dim {}, dims = [] : ({}) -> {ty}",
            factor.name,
            factor.ty()
        ),
        element,
        &dims,
    );
    let operation = b.pick(&["multiply", "add", "xor", "subtract"]);
    b.set(
        &format!(
            "stablehlo.{operation} {}, {} : {ty}",
            counted.name, spread.name
        ),
        element,
        &dims,
    )
}

pub(super) fn gather(b: &mut Builder) {
    let value = b.value(|value| value.rank() >= 1, "f32", &[33, 5]);
    let rank = value.rank() as i64;
    let columns = b.random.i64(1..=rank);
    let count = b.pick(&[0, 1, 3, 50, 1000]);
    let indices = indices(b, count, columns);
    let sizes: Vec<i64> = value
        .dims
        .iter()
        .enumerate()
        .map(|(at, dim)| match (at as i64) < columns {
            true => (*dim).min(1),
            false => *dim,
        })
        .collect();
    let collapsed: Vec<i64> = (0..columns).filter(|at| sizes[*at as usize] == 1).collect();
    let kept: Vec<i64> = (0..rank)
        .filter(|at| !collapsed.contains(at))
        .map(|at| sizes[at as usize])
        .collect();
    let offset: Vec<i64> = (1..=kept.len() as i64).collect();
    let mut dims = vec![count];
    dims.extend(&kept);
    let map: Vec<i64> = (0..columns).collect();
    let line = format!(
        "\"stablehlo.gather\"({}, {}) {{dimension_numbers = #stablehlo.gather<offset_dims = {}, \
         collapsed_slice_dims = {}, start_index_map = {}, index_vector_dim = 1>, \
         indices_are_sorted = {}, slice_sizes = {}}} : ({}, {}) -> {}",
        value.name,
        indices.name,
        list(&offset),
        list(&collapsed),
        list(&map),
        b.chance(2),
        array(&sizes),
        value.ty(),
        indices.ty(),
        tensor(&value.element, &dims)
    );
    b.result(&line, &value.element, &dims);
}

pub(super) fn scatter(b: &mut Builder) {
    let value = b.value(|value| value.rank() >= 1, "f32", &[33, 5]);
    let rank = value.rank() as i64;
    let columns = b.random.i64(1..=rank);
    let count = b.pick(&[0, 1, 3, 50, 1000]);
    let indices = indices(b, count, columns);
    let inserted: Vec<i64> = (0..columns).collect();
    let mut dims = vec![count];
    dims.extend((columns..rank).map(|at| value.dims[at as usize]));
    let window: Vec<i64> = (1..dims.len() as i64).collect();
    let updates = b.value(
        |other| other.element == value.element && other.dims == dims,
        &value.element,
        &dims,
    );
    let ty = tensor(&value.element, &[]);
    let body = match b.random.u32(..5) {
        0 => "stablehlo.return %y : TY".to_owned(),
        1 => "stablehlo.return %x : TY".to_owned(),
        2 => "%r = stablehlo.multiply %x, %y : TY\n    stablehlo.return %r : TY".to_owned(),
        3 => "%r = stablehlo.subtract %y, %x : TY\n    stablehlo.return %r : TY".to_owned(),
        _ => "%r = stablehlo.add %x, %y : TY\n    stablehlo.return %r : TY".to_owned(),
    };
    let body = body.replace("TY", &ty);
    let line = format!(
        "\"stablehlo.scatter\"({}, {}, {}) ({{\n    ^bb0(%x: {ty}, %y: {ty}):\n    {body}\n  }}) \
         {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {}, \
         inserted_window_dims = {}, scatter_dims_to_operand_dims = {}, index_vector_dim = 1>, \
         indices_are_sorted = {}, unique_indices = {}}} : ({}, {}, {}) -> {}",
        value.name,
        indices.name,
        updates.name,
        list(&window),
        list(&inserted),
        list(&inserted),
        b.chance(2),
        b.chance(2),
        value.ty(),
        indices.ty(),
        updates.ty(),
        value.ty()
    );
    b.result(&line, &value.element, &value.dims);
}

pub(super) fn dynamic_slice(b: &mut Builder) {
    let value = b.any();
    let element = b.pick(&["i32", "i64", "ui8", "i8", "ui64", "i16", "ui32"]);
    let starts: Vec<Value> = value.dims.iter().map(|_| b.index_scalar(element)).collect();
    let names: String = starts
        .iter()
        .map(|start| format!(", {}", start.name))
        .collect();
    let types: String = starts
        .iter()
        .map(|start| format!(", {}", start.ty()))
        .collect();
    let sizes: Vec<i64> = value
        .dims
        .iter()
        .map(|dim| b.random.i64(0..=*dim))
        .collect();
    let part = tensor(&value.element, &sizes);
    if b.chance(2) {
        let line = format!(
            "stablehlo.dynamic_slice {}{names}, sizes = {} : ({}{types}) -> {part}",
            value.name,
            list(&sizes),
            value.ty()
        );
        b.result(&line, &value.element, &sizes);
    } else {
        let update = b.value(
            |other| other.element == value.element && other.dims == sizes,
            &value.element,
            &sizes,
        );
        let line = format!(
            "stablehlo.dynamic_update_slice {}, {}{names} : ({}, {part}{types}) -> {}",
            value.name,
            update.name,
            value.ty(),
            value.ty()
        );
        b.result(&line, &value.element, &value.dims);
    }
}

/// Sizes that are known only at run time, as far as the compiler lets them through.
pub(super) fn dynamic_size(b: &mut Builder) {
    let value = b.value(|value| value.rank() > 0, "i32", &[1024]);
    let dim = b.random.usize(..value.rank());
    let size = b.index_scalar("i32");
    let mut dims: Vec<String> = value.dims.iter().map(i64::to_string).collect();
    let mut bounds: Vec<String> = vec!["?".into(); dims.len()];
    bounds[dim] = dims[dim].clone();
    dims[dim] = "?".into();
    let dynamic = format!(
        "tensor<{}x{}, #stablehlo.bounds<{}>>",
        dims.join("x"),
        value.element,
        bounds.join(", ")
    );
    let resized = b.name();
    b.line(&format!(
        "{resized} = stablehlo.set_dimension_size {}, {}, dim = {dim} : ({}, tensor<i32>) -> {dynamic}",
        value.name,
        size.name,
        value.ty()
    ));
    match b.random.u32(..4) {
        // Back to a fixed size.
        0 => {
            let whole = b.set(
                &format!(
                    "stablehlo.constant dense<{}> : tensor<i32>",
                    value.dims[dim]
                ),
                "i32",
                &[],
            );
            let line = format!(
                "stablehlo.set_dimension_size {resized}, {}, dim = {dim} : ({dynamic}, tensor<i32>) -> {}",
                whole.name,
                value.ty()
            );
            b.result(&line, &value.element, &value.dims);
        }
        1 => {
            let line = format!(
                "stablehlo.get_dimension_size {resized}, dim = {dim} : ({dynamic}) -> tensor<i32>"
            );
            b.result(&line, "i32", &[]);
        }
        2 => {
            let zero = b.constant(&value.element.clone(), &[]);
            let ty = tensor(&value.element, &[]);
            let all = list(&(0..value.rank() as i64).collect::<Vec<_>>());
            let line = format!(
                "stablehlo.reduce({resized} init: {}) applies stablehlo.add across dimensions = {all} : ({dynamic}, {ty}) -> {ty}",
                zero.name
            );
            b.result(&line, &value.element, &[]);
        }
        _ => {
            let line = format!(
                "stablehlo.custom_call @PadToStatic({resized}) : ({dynamic}) -> {}",
                value.ty()
            );
            b.result(&line, &value.element, &value.dims);
        }
    }
}
