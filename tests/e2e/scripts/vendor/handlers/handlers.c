// Handlers of a vendor, and how they are registered: what a GPU's package for JAX has in its extension
// modules.
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "pjrt_c_api.h"
#include "xla/ffi/api/c_api.h"

// Whether it is only asked for its version; says the oldest one that has all of this.
static int asked_for_version(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Extension_Base* extension = frame->extension_start;
  if (extension == NULL || extension->type != XLA_FFI_Extension_Metadata) return 0;
  XLA_FFI_Metadata* metadata = ((XLA_FFI_Metadata_Extension*)extension)->metadata;
  metadata->api_version.major_version = 0;
  metadata->api_version.minor_version = 1;
  return 1;
}

// `jnp.linalg.cholesky` of a matrix of float, column by column in memory.
XLA_FFI_Error* potrf(XLA_FFI_CallFrame* frame) {
  if (asked_for_version(frame)) return NULL;
  XLA_FFI_Buffer* operand = (XLA_FFI_Buffer*)frame->args.args[0];
  XLA_FFI_Buffer* result = (XLA_FFI_Buffer*)frame->rets.rets[0];
  XLA_FFI_Buffer* info = (XLA_FFI_Buffer*)frame->rets.rets[1];
  size_t n = (size_t)operand->dims[operand->rank - 1];
  float* l = result->data;
  // The program may have given it the operand's memory.
  if (l != operand->data) memcpy(l, operand->data, n * n * sizeof(float));
  for (size_t j = 0; j < n; ++j) {
    for (size_t i = 0; i < j; ++i) l[i + j * n] = 0;
    for (size_t i = j; i < n; ++i) {
      float sum = l[i + j * n];
      for (size_t k = 0; k < j; ++k) sum -= l[i + k * n] * l[j + k * n];
      l[i + j * n] = i == j ? sqrtf(sum) : sum / l[j + j * n];
    }
  }
  *(int*)info->data = 0;
  return NULL;
}

// Stands for a kernel, and for memory that nobody fills: four zeros.
XLA_FFI_Error* zeros(XLA_FFI_CallFrame* frame) {
  if (asked_for_version(frame)) return NULL;
  memset(((XLA_FFI_Buffer*)frame->rets.rets[0])->data, 0, 4 * sizeof(float));
  return NULL;
}

// As in pjrt_c_api_ffi_extension.h.
typedef struct {
  size_t struct_size;
  const char* target_name;
  size_t target_name_size;
  void* handler;
  const char* platform_name;
  size_t platform_name_size;
  int traits;
} RegisterArgs;

typedef struct {
  PJRT_Extension_Base base;
  void* type_register;
  void* user_data_add;
  PJRT_Error* (*register_handler)(RegisterArgs* args);
} FfiExtension;

// Returns whether the plugin took it.
int register_handler(const PJRT_Api* api, const char* name, void* handler, const char* platform) {
  PJRT_Extension_Base* next = api->extension_start;
  while (next != NULL && next->type != PJRT_Extension_Type_FFI) next = next->next;
  if (next == NULL) return 0;
  RegisterArgs args = {sizeof(RegisterArgs), name,     strlen(name), handler,
                       platform,             strlen(platform), 0};
  return ((FfiExtension*)next)->register_handler(&args) == NULL;
}
