"""Which backends JAX has where a vendor's own package is installed, by the order of discovery."""

import sys

import jax
from jax._src import hardware_utils, xla_bridge

# JAX does not even try `cuda` on machines without such a device.
hardware_utils.has_visible_nvidia_gpu = lambda: True

# JAX discovers plugins in no particular order; what is initialized here is registered first.
if sys.argv[1] == "vendor":
    import jax_plugins.of_vendor as first
else:
    import salus.jax_plugin as first
first.initialize()

backends = xla_bridge.backends()
ours = backends["salus"]
print("backends", *sorted(backends))
print("ours", *sorted(name for name, backend in backends.items() if backend is ours))
print("default is ours", jax.devices()[0].client is ours)
for name in sys.argv[2:]:
    print(name, "is ours", jax.devices(name)[0].client is ours)
print("sum", float(jax.numpy.arange(4.0).sum()))
