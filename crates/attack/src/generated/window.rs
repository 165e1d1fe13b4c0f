//! Reductions, windows, convolutions and padding, with sizes at the edge of what is allowed.

use super::builder::*;

/// A region of two scalars that returns one, not always associative.
fn combiner(b: &mut Builder, element: &str) -> String {
    let ty = tensor(element, &[]);
    let operation = match element {
        "i1" => b.pick(&["and", "or", "xor"]),
        _ => b.pick(&[
            "add", "maximum", "minimum", "multiply", "subtract", "divide",
        ]),
    };
    let (x, y) = b.pick(&[("%x", "%y"), ("%y", "%x"), ("%y", "%y")]);
    format!(
        "({{\n    ^bb0(%x: {ty}, %y: {ty}):\n    %r = stablehlo.{operation} {x}, {y} : {ty}\n    \
         stablehlo.return %r : {ty}\n  }})"
    )
}

pub(super) fn reduce(b: &mut Builder) {
    let value = b.any();
    let over: Vec<i64> = (0..value.rank() as i64).filter(|_| b.chance(2)).collect();
    let dims: Vec<i64> = value
        .dims
        .iter()
        .enumerate()
        .filter(|(at, _)| !over.contains(&(*at as i64)))
        .map(|(_, dim)| *dim)
        .collect();
    let start = b.constant(&value.element.clone(), &[]);
    let body = combiner(b, &value.element.clone());
    let line = format!(
        "\"stablehlo.reduce\"({}, {}) {body} {{dimensions = {}}} : ({}, {}) -> {}",
        value.name,
        start.name,
        array(&over),
        value.ty(),
        start.ty(),
        tensor(&value.element, &dims)
    );
    b.result(&line, &value.element, &dims);
}

struct Window {
    text: String,
    dims: Vec<i64>,
}

/// Attributes of a window over all dimensions, and what comes of it. `None` if nothing may come.
fn window(b: &mut Builder, dims: &[i64], names: &[&str; 5]) -> Option<Window> {
    let mut columns: [Vec<i64>; 4] = Default::default();
    let (mut padding, mut out) = (Vec::new(), Vec::new());
    for dim in dims {
        let size = b.pick(&[1, 1, 2, 3, 7, 40]);
        let stride = b.pick(&[1, 1, 2, 3, 50]);
        let base = b.pick(&[1, 1, 1, 2, 9]);
        let dilation = b.pick(&[1, 1, 1, 2, 11]);
        let (low, high) = (
            b.pick(&[0, 0, 1, 5, 60, -1, -3]),
            b.pick(&[0, 0, 1, 2, 60, -1, -4]),
        );
        let spread = if *dim == 0 { 0 } else { (dim - 1) * base + 1 };
        let padded = spread + low + high;
        let reach = (size - 1) * dilation + 1;
        out.push(if padded <= 0 || reach > padded {
            0
        } else {
            (padded - reach) / stride + 1
        });
        if padded < 0 {
            return None;
        }
        for (column, number) in columns.iter_mut().zip([size, stride, base, dilation]) {
            column.push(number);
        }
        padding.push(format!("[{low}, {high}]"));
    }
    if out.iter().product::<i64>() > 1 << 16 {
        return None;
    }
    let mut text = String::new();
    for (name, column) in names.iter().zip(&columns) {
        if !name.is_empty() {
            text += &format!("{name} = {}, ", array(column));
        }
    }
    let padding = match padding.is_empty() {
        true => format!("{} = dense<> : tensor<0x2xi64>", names[4]),
        false => format!(
            "{} = dense<[{}]> : tensor<{}x2xi64>",
            names[4],
            padding.join(", "),
            dims.len()
        ),
    };
    Some(Window {
        text: text + &padding,
        dims: out,
    })
}

pub(super) fn reduce_window(b: &mut Builder) {
    let value = b.value(|value| value.rank() > 0, "f32", &[7, 9]);
    let names = [
        "window_dimensions",
        "window_strides",
        "base_dilations",
        "window_dilations",
        "padding",
    ];
    let Some(window) = window(b, &value.dims, &names) else {
        return;
    };
    let start = b.constant(&value.element.clone(), &[]);
    let body = combiner(b, &value.element.clone());
    let line = format!(
        "\"stablehlo.reduce_window\"({}, {}) {body} {{{}}} : ({}, {}) -> {}",
        value.name,
        start.name,
        window.text,
        value.ty(),
        start.ty(),
        tensor(&value.element, &window.dims)
    );
    b.result(&line, &value.element, &window.dims);
}

pub(super) fn select_and_scatter(b: &mut Builder) {
    let value = b.value(|value| value.rank() > 0 && value.is_float(), "f32", &[8, 8]);
    let (mut sizes, mut strides, mut padding, mut dims) = (vec![], vec![], vec![], vec![]);
    for dim in &value.dims {
        let size = b.pick(&[1, 2, 3, 7]);
        let stride = b.pick(&[1, 2, 5]);
        let (low, high) = (b.pick(&[0, 1, 4]), b.pick(&[0, 2, 9]));
        let padded = dim + low + high;
        dims.push(if padded < size {
            0
        } else {
            (padded - size) / stride + 1
        });
        sizes.push(size);
        strides.push(stride);
        padding.push(format!("[{low}, {high}]"));
    }
    let source = b.value(
        |other| other.element == value.element && other.dims == dims,
        &value.element,
        &dims,
    );
    let start = b.constant(&value.element.clone(), &[]);
    let ty = tensor(&value.element, &[]);
    let direction = b.pick(&["GE", "GT", "NE", "EQ", "LT"]);
    let add = combiner(b, &value.element.clone());
    let line = format!(
        "\"stablehlo.select_and_scatter\"({}, {}, {}) ({{\n    ^bb0(%a: {ty}, %b: {ty}):\n    \
         %q = stablehlo.compare {direction}, %a, %b : ({ty}, {ty}) -> tensor<i1>\n    \
         stablehlo.return %q : tensor<i1>\n  }}, {} {{window_dimensions = {}, window_strides = {}, \
         padding = dense<[{}]> : tensor<{}x2xi64>}} : ({}, {}, {ty}) -> {}",
        value.name,
        source.name,
        start.name,
        add.trim_start_matches('('),
        array(&sizes),
        array(&strides),
        padding.join(", "),
        value.rank(),
        value.ty(),
        source.ty(),
        value.ty()
    );
    b.result(&line, &value.element, &value.dims);
}

pub(super) fn convolution(b: &mut Builder) {
    let element = b.pick(&["f32", "f64", "f16", "bf16", "i32", "i8", "complex<f32>"]);
    let groups = b.pick(&[1, 1, 2, 3]);
    let (features, out) = (groups * b.pick(&[1, 2]), groups * b.pick(&[1, 4]));
    let spatial = b.random.usize(1..3);
    let space: Vec<i64> = (0..spatial).map(|_| b.pick(&[0, 1, 2, 5, 12])).collect();
    let batch = b.pick(&[0, 1, 3]);
    let (mut image, mut kernel, mut dims) = (vec![batch], vec![], vec![batch]);
    let mut parts: [Vec<String>; 5] = Default::default();
    for dim in &space {
        let size = b.pick(&[0, 1, 2, 3, 6]);
        let (stride, left, right) = (
            b.pick(&[1, 1, 2, 7]),
            b.pick(&[1, 1, 3]),
            b.pick(&[1, 1, 4]),
        );
        let (low, high) = (b.pick(&[0, 1, 5, -1]), b.pick(&[0, 2, 30, -2]));
        let padded = if *dim == 0 { 0 } else { (dim - 1) * left + 1 } + low + high;
        let reach = if size == 0 { 0 } else { (size - 1) * right + 1 };
        dims.push(if padded <= 0 || reach > padded {
            0
        } else {
            (padded - reach) / stride + 1
        });
        image.push(*dim);
        kernel.push(size);
        let turned = b.chance(3).to_string();
        let texts = [
            stride.to_string(),
            format!("[{low}, {high}]"),
            left.to_string(),
            right.to_string(),
            turned,
        ];
        for (part, text) in parts.iter_mut().zip(texts) {
            part.push(text);
        }
    }
    image.push(features);
    dims.push(out);
    kernel.extend([features / groups, out]);
    let places: Vec<String> = (0..spatial).map(|at| at.to_string()).collect();
    let places = places.join(", ");
    let [stride, pad, left, right, turned] = parts.map(|part| part.join(", "));
    let image = b.value(
        |value| value.element == element && value.dims == image,
        element,
        &image,
    );
    let kernel = b.value(
        |value| value.element == element && value.dims == kernel,
        element,
        &kernel,
    );
    let line = format!(
        "stablehlo.convolution({}, {}) dim_numbers = [b, {places}, f]x[{places}, i, o]->[b, {places}, f], \
         window = {{stride = [{stride}], pad = [{pad}], lhs_dilate = [{left}], rhs_dilate = [{right}], \
         reverse = [{turned}]}} {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}} \
         : ({}, {}) -> {}",
        image.name,
        kernel.name,
        image.ty(),
        kernel.ty(),
        tensor(element, &dims)
    );
    b.result(&line, element, &dims);
}

pub(super) fn pad(b: &mut Builder) {
    let value = b.any();
    let start = b.constant(&value.element.clone(), &[]);
    let (mut low, mut high, mut inner, mut dims) = (vec![], vec![], vec![], vec![]);
    for dim in &value.dims {
        let (l, h, i) = (
            b.pick(&[0, 1, 9, -1, -5]),
            b.pick(&[0, 2, 30, -2]),
            b.pick(&[0, 0, 1, 3]),
        );
        let size = dim + l + h + (dim - 1).max(0) * i;
        if size < 0 {
            return;
        }
        low.push(l);
        high.push(h);
        inner.push(i);
        dims.push(size);
    }
    if dims.iter().product::<i64>() > 1 << 17 {
        return;
    }
    let line = format!(
        "stablehlo.pad {}, {}, low = {}, high = {}, interior = {} : ({}, {}) -> {}",
        value.name,
        start.name,
        list(&low),
        list(&high),
        list(&inner),
        value.ty(),
        start.ty(),
        tensor(&value.element, &dims)
    );
    b.result(&line, &value.element, &dims);
}
