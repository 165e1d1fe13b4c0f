// A plugin that loads but has no device: what a CUDA plugin is on a machine without a GPU.
#include <stdlib.h>
#include <string.h>

#include "pjrt_c_api.h"

static const char kMessage[] = "No visible GPU devices.";

static PJRT_Error* fail(PJRT_Client_Create_Args* args) {
  (void)args;
  return (PJRT_Error*)kMessage;
}
static PJRT_Error* initialize(PJRT_Plugin_Initialize_Args* args) {
  (void)args;
  return NULL;
}
static PJRT_Error* attributes(PJRT_Plugin_Attributes_Args* args) {
  args->num_attributes = 0;
  args->attributes = NULL;
  return NULL;
}
static void error_destroy(PJRT_Error_Destroy_Args* args) { (void)args; }
static void error_message(PJRT_Error_Message_Args* args) {
  args->message = (const char*)args->error;
  args->message_size = strlen(args->message);
}
static PJRT_Error* error_code(PJRT_Error_GetCode_Args* args) {
  args->code = PJRT_Error_Code_FAILED_PRECONDITION;
  return NULL;
}

static PJRT_Api api;

const PJRT_Api* GetPjrtApi(void) {
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  api.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  api.pjrt_api_version.major_version = PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = PJRT_API_MINOR;
  api.PJRT_Error_Destroy = error_destroy;
  api.PJRT_Error_Message = error_message;
  api.PJRT_Error_GetCode = error_code;
  api.PJRT_Plugin_Initialize = initialize;
  api.PJRT_Plugin_Attributes = attributes;
  api.PJRT_Client_Create = fail;
  return &api;
}
