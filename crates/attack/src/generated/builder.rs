//! What modules are written with: values of a type, random draws, and lines of text.

use fastrand::Rng;

/// Types of elements that arrays are made of.
pub(super) const INTS: &[&str] = &["i32", "i8", "i16", "i64", "ui8", "ui16", "ui32", "ui64"];
pub(super) const FLOATS: &[&str] = &["f32", "f64", "f16", "bf16"];
pub(super) const SMALL: &[&str] = &[
    "i4",
    "ui4",
    "i2",
    "ui2",
    "f8E4M3FN",
    "f8E5M2",
    "f8E4M3FNUZ",
    "f8E5M2FNUZ",
    "f8E4M3B11FNUZ",
    "f8E4M3",
    "f8E3M4",
    "f4E2M1FN",
    "f8E8M0FNU",
];
pub(super) const SUB_BYTE: &[&str] = &["i4", "ui4", "i2", "ui2", "f4E2M1FN"];
pub(super) const COMPLEX: &[&str] = &["complex<f32>", "complex<f64>"];

/// A value of the program.
#[derive(Debug, Clone)]
pub(super) struct Value {
    pub(super) name: String,
    pub(super) element: String,
    pub(super) dims: Vec<i64>,
}

impl Value {
    pub(super) fn ty(&self) -> String {
        tensor(&self.element, &self.dims)
    }

    pub(super) fn rank(&self) -> usize {
        self.dims.len()
    }

    pub(super) fn is_float(&self) -> bool {
        FLOATS.contains(&self.element.as_str())
    }

    pub(super) fn is_int(&self) -> bool {
        INTS.contains(&self.element.as_str())
    }

    pub(super) fn is_complex(&self) -> bool {
        COMPLEX.contains(&self.element.as_str())
    }
}

pub(super) fn tensor(element: &str, dims: &[i64]) -> String {
    let dims: String = dims.iter().map(|dim| format!("{dim}x")).collect();
    format!("tensor<{dims}{element}>")
}

/// `[1, 2, 3]`, as lists are written in attributes.
pub(super) fn list(numbers: &[i64]) -> String {
    format!("{numbers:?}")
}

/// `array<i64: 1, 2, 3>`
pub(super) fn array(numbers: &[i64]) -> String {
    let text: Vec<String> = numbers.iter().map(i64::to_string).collect();
    match text.is_empty() {
        true => "array<i64>".into(),
        false => format!("array<i64: {}>", text.join(", ")),
    }
}

pub(super) struct Builder {
    pub(super) random: Rng,
    pub(super) body: String,
    /// Further functions of the module.
    pub(super) functions: String,
    pub(super) values: Vec<Value>,
    /// Names given so far.
    pub(super) next: usize,
    /// Most elements are smaller than a byte.
    pub(super) small: bool,
}

impl Builder {
    pub(super) fn new(seed: u64, small: bool) -> Self {
        Self {
            random: Rng::with_seed(seed),
            small,
            body: String::new(),
            functions: String::new(),
            values: Vec::new(),
            next: 0,
        }
    }

    pub(super) fn parameter(&mut self) -> Value {
        let element = self.element();
        let dims = self.dims();
        let value = Value {
            name: format!("%p{}", self.values.len()),
            element,
            dims,
        };
        self.values.push(value.clone());
        value
    }

    pub(super) fn finish(mut self, parameters: &[Value]) -> String {
        let count = self.values.len();
        let given = self.values[count.saturating_sub(6)..].to_vec();
        let mut may_alias = true;
        let taken: Vec<String> = parameters
            .iter()
            .map(|value| {
                let fits = may_alias && given[0].ty() == value.ty();
                let attribute = match self.random.u32(..12) {
                    0..3 if fits => {
                        may_alias = false;
                        " {tf.aliasing_output = 0 : i32}"
                    }
                    1 => " {jax.buffer_donor = true}",
                    2 => " {mhlo.layout_mode = \"auto\"}",
                    3 => " {mhlo.memory_kind = \"pinned_host\"}",
                    _ => "",
                };
                format!("{}: {}{attribute}", value.name, value.ty())
            })
            .collect();
        let names: Vec<&str> = given.iter().map(|value| value.name.as_str()).collect();
        let types: Vec<String> = given.iter().map(Value::ty).collect();
        let (names, types) = (names.join(", "), types.join(", "));
        format!(
            "module @generated {{\n{}func.func public @main({}) -> ({types}) {{\n{}  return {names} \
             : {types}\n}} }}\n",
            self.functions,
            taken.join(", "),
            self.body
        )
    }

    // ------------------------------------------------------------ random draws

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.usize(..of.len())]
    }

    pub(super) fn chance(&mut self, one_in: u32) -> bool {
        self.random.u32(..one_in) == 0
    }

    pub(super) fn element(&mut self) -> String {
        if self.small && !self.chance(4) {
            return self.pick(SUB_BYTE).to_owned();
        }
        let from = match self.random.u32(..20) {
            0..8 => FLOATS,
            8..14 => INTS,
            14..16 => SMALL,
            16..18 => COMPLEX,
            _ => &["i1"],
        };
        self.pick(from).to_owned()
    }

    pub(super) fn dims(&mut self) -> Vec<i64> {
        let rank = self.pick(&[0, 1, 1, 1, 2, 2, 2, 3, 4, 5]);
        (0..rank).map(|_| self.dim(rank)).collect()
    }

    pub(super) fn dim(&mut self, rank: usize) -> i64 {
        match rank {
            1 => self.pick(&[0, 1, 2, 3, 7, 16, 17, 33, 100, 1000, 4096, 20_000]),
            2 => self.pick(&[0, 1, 2, 3, 5, 8, 16, 31, 64, 129]),
            _ => self.pick(&[0, 1, 1, 2, 2, 3, 4, 7]),
        }
    }

    /// A number that an index should not be.
    pub(super) fn wild(&mut self) -> i64 {
        self.pick(&[
            0,
            1,
            -1,
            2,
            -2,
            7,
            100,
            -100,
            127,
            -128,
            32_767,
            65_535,
            1 << 20,
            -(1 << 20),
            i64::from(i32::MAX),
            i64::from(i32::MIN),
            i64::from(u32::MAX),
            i64::MAX,
            i64::MIN,
            1 << 40,
        ])
    }

    // ------------------------------------------------------------ values

    pub(super) fn name(&mut self) -> String {
        self.next += 1;
        format!("%v{}", self.next)
    }

    pub(super) fn line(&mut self, text: &str) {
        self.body += "  ";
        self.body += text;
        self.body += "\n";
    }

    pub(super) fn any(&mut self) -> Value {
        let at = self.random.usize(..self.values.len());
        self.values[at].clone()
    }

    /// One of those that are there and fit, else a new one.
    pub(super) fn value(
        &mut self,
        fits: impl Fn(&Value) -> bool,
        element: &str,
        dims: &[i64],
    ) -> Value {
        let fitting: Vec<Value> = self
            .values
            .iter()
            .filter(|value| fits(value))
            .cloned()
            .collect();
        if !fitting.is_empty() && !self.chance(4) {
            return fitting[self.random.usize(..fitting.len())].clone();
        }
        self.fresh(element, dims)
    }

    /// A value that depends on nothing, but that no compiler folds: it counts.
    pub(super) fn fresh(&mut self, element: &str, dims: &[i64]) -> Value {
        let complex = element.starts_with("complex");
        let counted = match element {
            "i1" => "i32",
            _ if complex || SMALL.contains(&element) => "f32",
            other => other,
        };
        let ty = tensor(counted, dims);
        let name = self.name();
        if dims.is_empty() {
            let number = self.random.u32(..100);
            let number = match counted.contains('f') {
                true => format!("{number}.0"),
                false => number.to_string(),
            };
            self.line(&format!(
                "{name} = stablehlo.constant dense<{number}> : {ty}"
            ));
        } else {
            let dim = self.random.usize(..dims.len());
            self.line(&format!("{name} = stablehlo.iota dim = {dim} : {ty}"));
        }
        let mut value = Value {
            name,
            element: counted.into(),
            dims: dims.into(),
        };
        if counted != element {
            value = self.converted(&value, element);
        }
        value
    }

    pub(super) fn converted(&mut self, value: &Value, element: &str) -> Value {
        let to = tensor(element, &value.dims);
        let line = format!(
            "stablehlo.convert {} : ({}) -> {to}",
            value.name,
            value.ty()
        );
        self.set(&line, element, &value.dims)
    }

    /// `name = operation`, without making it an operand of others.
    pub(super) fn set(&mut self, operation: &str, element: &str, dims: &[i64]) -> Value {
        let name = self.name();
        self.line(&format!("{name} = {operation}"));
        Value {
            name,
            element: element.into(),
            dims: dims.into(),
        }
    }

    /// The same, for a result that is returned or worked on.
    pub(super) fn result(&mut self, operation: &str, element: &str, dims: &[i64]) -> Value {
        let value = self.set(operation, element, dims);
        self.values.push(value.clone());
        value
    }

    /// Several results of one operation.
    pub(super) fn results(&mut self, operation: &str, types: &[(String, Vec<i64>)]) {
        let name = self.name();
        self.line(&format!("{name}:{} = {operation}", types.len()));
        for (index, (element, dims)) in types.iter().enumerate() {
            self.values.push(Value {
                name: format!("{name}#{index}"),
                element: element.clone(),
                dims: dims.clone(),
            });
        }
    }

    /// A number of this type, as a constant's text.
    pub(super) fn number(&mut self, element: &str) -> String {
        if element == "i1" {
            return self.pick(&["true", "false"]).into();
        }
        if element.starts_with("complex") {
            return "(1.0, -2.0)".into();
        }
        if element.contains('f') {
            return match (element, self.random.u32(..6)) {
                ("f32", 0) => "0x7FC00000".into(),
                ("f32", 1) => "0x7F800000".into(),
                ("f32", 2) => "0xFF800000".into(),
                _ => self.pick(&["0.0", "1.0", "-1.0", "0.5"]).into(),
            };
        }
        self.pick(&["0", "1", "1", "0"]).into()
    }

    pub(super) fn constant(&mut self, element: &str, dims: &[i64]) -> Value {
        let number = self.number(element);
        let ty = tensor(element, dims);
        self.set(
            &format!("stablehlo.constant dense<{number}> : {ty}"),
            element,
            dims,
        )
    }

    /// A whole number known when the program is compiled, or one that it is only given at run time.
    pub(super) fn index_scalar(&mut self, element: &str) -> Value {
        let given = self.value(
            |value| value.element == element && value.dims.is_empty(),
            element,
            &[],
        );
        if self.chance(2) {
            return given;
        }
        let (low, high) = match element {
            "i8" => (-128, 127),
            "ui8" => (0, 255),
            "i16" => (-32_768, 32_767),
            "ui16" => (0, 65_535),
            "i32" => (i64::from(i32::MIN), i64::from(i32::MAX)),
            "ui32" => (0, i64::from(u32::MAX)),
            "ui64" => (0, i64::MAX),
            _ => (i64::MIN, i64::MAX),
        };
        let number = self.wild().clamp(low, high);
        let ty = tensor(element, &[]);
        self.set(
            &format!("stablehlo.constant dense<{number}> : {ty}"),
            element,
            &[],
        )
    }
}
