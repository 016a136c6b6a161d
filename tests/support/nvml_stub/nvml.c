/* A stand-in for libnvidia-ml.so.1: every call reads a folder of small files, and setters write to it.
 *
 * $GPUWRIGHT_NVML_STUB/init_error        the code that opening answers
 * $GPUWRIGHT_NVML_STUB/gpuN/KEY          one value; a missing key is NOT_SUPPORTED
 * $GPUWRIGHT_NVML_STUB/gpuN/absent       not seen when NVML is opened
 * $GPUWRIGHT_NVML_STUB/gpuN/lost         every call answers GPU_IS_LOST
 * $GPUWRIGHT_NVML_STUB/gpuN/mig_mode     "CURRENT PENDING"
 * $GPUWRIGHT_NVML_STUB/gpuN/migK/KEY     one value of its MIG device K, as of a GPU; no such device without its uuid
 * $GPUWRIGHT_NVML_STUB/gpuN/pids/PID     "BYTES MPS": a process with a context; BYTES of -1: not said
 * $GPUWRIGHT_NVML_STUB/gpuN/fault.CALL   "error CODE", "hang" (until the file is gone) or "ignored" (setters)
 * $GPUWRIGHT_NVML_STUB/events/NNN        "N XID": an event of gpuN, taken once
 * $GPUWRIGHT_NVML_STUB/history           one line for each setter that was called
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long u64;
enum {
  OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, TIMEOUT = 10, LOST = 15
};
#define MOST 16
#define MOST_PARTS 7

struct device { int number, part; }; /* part: of a MIG device, from 1; 0: the GPU */
static struct device parts[MOST][MOST_PARTS];
static struct device devices[MOST]; /* handles stay what they are; which GPU an index is depends on the opening */
static int present[MOST], count, opened;

static const char *root(void) {
  const char *folder = getenv("GPUWRIGHT_NVML_STUB");
  return folder ? folder : "/nonexistent";
}

static void pause_ms(long ms) {
  struct timespec span = {ms / 1000, (ms % 1000) * 1000000};
  nanosleep(&span, NULL);
}

static int read_text(const char *path, char *text, size_t size) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  ssize_t got = read(file, text, size - 1);
  close(file);
  if (got < 0) return 0;
  while (got > 0 && text[got - 1] == '\n') got--;
  text[got] = 0;
  return 1;
}

static void path_of(const struct device *device, const char *key, char *path, size_t size) {
  if (device->part) snprintf(path, size, "%s/gpu%d/mig%d/%s", root(), device->number, device->part - 1, key);
  else snprintf(path, size, "%s/gpu%d/%s", root(), device->number, key);
}

static int text_of(const struct device *device, const char *key, char *text, size_t size) {
  char path[4096];
  path_of(device, key, path, sizeof path);
  return read_text(path, text, size);
}

static int has(const struct device *device, const char *key) {
  char path[4096];
  path_of(device, key, path, sizeof path);
  return access(path, F_OK) == 0;
}

static int number_of(const struct device *device, const char *key, u64 *value) {
  char text[64];
  if (!text_of(device, key, text, sizeof text)) return 0;
  *value = strtoull(text, NULL, 10);
  return 1;
}

static u64 number_or(const struct device *device, const char *key, u64 otherwise) {
  u64 value;
  return number_of(device, key, &value) ? value : otherwise;
}

static void put(const struct device *device, const char *key, u64 value) {
  char path[4096], beside[4200];
  path_of(device, key, path, sizeof path);
  snprintf(beside, sizeof beside, "%s.%d.new", path, (int)getpid());
  FILE *file = fopen(beside, "w");
  if (!file) return;
  fprintf(file, "%llu\n", value);
  fclose(file);
  rename(beside, path);
}

static void drop(const struct device *device, const char *key) {
  char path[4096];
  path_of(device, key, path, sizeof path);
  unlink(path);
}

static void record(const struct device *device, const char *call, u64 value) {
  char path[4096], line[256];
  snprintf(path, sizeof path, "%s/history", root());
  int length = snprintf(line, sizeof line, "gpu%d %s %llu\n", device->number, call, value);
  int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  if (write(file, line, (size_t)length) < 0) abort();
  close(file);
}

/* What stands in the way of a call; *ignored: it says success and does nothing. */
static int obstacle(const struct device *device, const char *call, int *ignored) {
  char key[128], text[64];
  if (!opened) return UNINITIALIZED;
  snprintf(key, sizeof key, "fault.%s", call);
  while (text_of(device, key, text, sizeof text)) {
    if (!strncmp(text, "error ", 6)) return atoi(text + 6);
    if (!strcmp(text, "ignored")) { if (ignored) *ignored = 1; break; }
    pause_ms(10); /* hang */
  }
  return has(&devices[device->number], "lost") ? LOST : OK;
}
#define CHECK(device) do { int code = obstacle(device, __func__, NULL); if (code) return code; } while (0)

const char *nvmlErrorString(int code) {
  switch (code) {
    case NOT_SUPPORTED: return "Not Supported";
    case LOST: return "GPU is lost";
    default: return "an error of the stub";
  }
}

int nvmlInitWithFlags(unsigned int flags) {
  char path[4096], text[64];
  (void)flags;
  snprintf(path, sizeof path, "%s/init_error", root());
  if (read_text(path, text, sizeof text)) return atoi(text);
  count = 0;
  for (int number = 0; number < MOST; number++) {
    devices[number].number = number;
    if (has(&devices[number], "uuid") && !has(&devices[number], "absent")) present[count++] = number;
  }
  opened++;
  return OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { if (opened) opened--; return OK; }

int nvmlSystemGetDriverVersion(char *version, unsigned int length) {
  snprintf(version, length, "570.00.stub");
  return OK;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = 12080;
  return OK;
}
int nvmlDeviceGetCount_v2(unsigned int *answer) { *answer = (unsigned)count; return opened ? OK : UNINITIALIZED; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct device **device) {
  if (index >= (unsigned)count) return INVALID;
  CHECK(&devices[present[index]]);
  *device = &devices[present[index]];
  return OK;
}

int nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending) {
  char text[64];
  CHECK(device);
  if (device->part || !text_of(device, "mig_mode", text, sizeof text)) return NOT_SUPPORTED;
  return sscanf(text, "%u %u", current, pending) == 2 ? OK : INVALID;
}
int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned *most) {
  CHECK(device);
  *most = device->part ? 0 : MOST_PARTS;
  return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned index, struct device **answer) {
  CHECK(device);
  if (device->part || index >= MOST_PARTS) return INVALID;
  struct device *part = &parts[device->number][index];
  part->number = device->number;
  part->part = (int)index + 1;
  if (!has(part, "uuid")) return NOT_FOUND;
  *answer = part;
  return OK;
}

static int string_call(const struct device *device, const char *call, const char *key, char *text, unsigned size) {
  int code = obstacle(device, call, NULL);
  if (code) return code;
  return text_of(device, key, text, size) ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetUUID(struct device *device, char *text, unsigned size) {
  return string_call(device, __func__, "uuid", text, size);
}
int nvmlDeviceGetName(struct device *device, char *text, unsigned size) {
  return string_call(device, __func__, "name", text, size);
}

int nvmlDeviceGetSerial(struct device *device, char *text, unsigned size) {
  return string_call(device, __func__, "serial", text, size);
}

struct pci { char legacy[16]; unsigned domain, bus, device, ids, sub_ids; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(struct device *device, struct pci *pci) {
  memset(pci, 0, sizeof *pci);
  return string_call(device, __func__, "pci", pci->bus_id, sizeof pci->bus_id);
}

static int number_call(const struct device *device, const char *call, const char *key, unsigned *value) {
  u64 found;
  int code = obstacle(device, call, NULL);
  if (code) return code;
  if (!number_of(device, key, &found)) return NOT_SUPPORTED;
  *value = (unsigned)found;
  return OK;
}
static int long_call(const struct device *device, const char *call, const char *key, u64 *value) {
  int code = obstacle(device, call, NULL);
  if (code) return code;
  return number_of(device, key, value) ? OK : NOT_SUPPORTED;
}
#define NUMBER(call, key) \
  int call(struct device *device, unsigned *value) { return number_call(device, __func__, key, value); }
#define LONG(call, key) \
  int call(struct device *device, u64 *value) { return long_call(device, __func__, key, value); }
NUMBER(nvmlDeviceGetPowerUsage, "power_mw")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_default_mw")
NUMBER(nvmlDeviceGetNumGpuCores, "cores")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetGpuInstanceId, "gpu_instance")
NUMBER(nvmlDeviceGetComputeInstanceId, "compute_instance")
LONG(nvmlDeviceGetTotalEnergyConsumption, "energy_mj")
LONG(nvmlDeviceGetCurrentClocksEventReasons, "clock_reasons")
LONG(nvmlDeviceGetCurrentClocksThrottleReasons, "clock_reasons")
LONG(nvmlDeviceGetSupportedEventTypes, "event_types")

int nvmlDeviceGetEnforcedPowerLimit(struct device *device, unsigned *value) {
  if (has(device, "enforced_limit_mw")) return number_call(device, __func__, "enforced_limit_mw", value);
  return number_call(device, __func__, "power_limit_mw", value);
}

int nvmlDeviceGetCudaComputeCapability(struct device *device, int *major, int *minor) {
  char text[64];
  CHECK(device);
  if (!text_of(device, "capability", text, sizeof text)) return NOT_SUPPORTED;
  return sscanf(text, "%d.%d", major, minor) == 2 ? OK : INVALID;
}

struct attributes { unsigned sms, unused[7]; u64 memory_mb; };
int nvmlDeviceGetAttributes_v2(struct device *device, struct attributes *answer) {
  memset(answer, 0, sizeof *answer);
  return number_call(device, __func__, "sm_count", &answer->sms);
}

int nvmlDeviceGetTemperature(struct device *device, int sensor, unsigned *value) {
  (void)sensor;
  return number_call(device, __func__, "temperature_c", value);
}

int nvmlDeviceGetTotalEccErrors(struct device *device, int kind, int since, u64 *value) {
  (void)kind; (void)since;
  return long_call(device, __func__, "ecc_uncorrected", value);
}

struct utilization { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(struct device *device, struct utilization *answer) {
  answer->memory = 0;
  return number_call(device, __func__, "utilization", &answer->gpu);
}

/* The locked clock, unless something slows the GPU down: "throttled_mhz" is its clock then. */
int nvmlDeviceGetClockInfo(struct device *device, int kind, unsigned *mhz) {
  (void)kind;
  CHECK(device);
  u64 free_mhz, slow_mhz;
  if (!number_of(device, "sm_clock_mhz", &free_mhz)) return NOT_SUPPORTED;
  u64 low = number_or(device, "locked_min_mhz", 0), high = number_or(device, "locked_max_mhz", ~0ULL);
  u64 now = free_mhz < low ? low : free_mhz > high ? high : free_mhz;
  if (number_of(device, "throttled_mhz", &slow_mhz) && slow_mhz < now) now = slow_mhz;
  *mhz = (unsigned)now;
  return OK;
}

/* With no array, or one too small, the answer is how many there are. */
static int list_call(const struct device *device, const char *key, int only_half, unsigned *size, unsigned *values) {
  static __thread char text[65536];
  unsigned all[4096], found = 0;
  if (!text_of(device, key, text, sizeof text)) return NOT_SUPPORTED;
  for (char *rest = text, *word; found < 4096 && (word = strtok_r(rest, " \n", &rest));) all[found++] = (unsigned)atoi(word);
  if (only_half) found = (found + 1) / 2;
  if (!found) { *size = 0; return OK; }
  if (!values || *size < found) { *size = found; return SMALL; }
  memcpy(values, all, found * sizeof *all);
  *size = found;
  return OK;
}
int nvmlDeviceGetSupportedMemoryClocks(struct device *device, unsigned *size, unsigned *values) {
  CHECK(device);
  return list_call(device, "memory_clocks", 0, size, values);
}
int nvmlDeviceGetSupportedGraphicsClocks(struct device *device, unsigned memory_mhz, unsigned *size, unsigned *values) {
  unsigned memory[64], memories = 64, highest = 0;
  CHECK(device);
  if (list_call(device, "memory_clocks", 0, &memories, memory) == OK)
    for (unsigned at = 0; at < memories; at++) if (memory[at] > highest) highest = memory[at];
  return list_call(device, "clocks", memory_mhz != highest, size, values);
}

int nvmlDeviceGetPowerManagementLimitConstraints(struct device *device, unsigned *low, unsigned *high) {
  int code = number_call(device, __func__, "power_min_mw", low);
  return code ? code : number_call(device, __func__, "power_max_mw", high);
}

struct process { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; };
static int processes(const struct device *device, int under_mps, unsigned *size, struct process *list) {
  char path[4096], text[64];
  unsigned found = 0;
  path_of(device, "pids", path, sizeof path);
  DIR *folder = opendir(path);
  struct dirent *entry;
  while (folder && (entry = readdir(folder))) {
    char file[4400];
    long long bytes;
    int mps;
    if (atoi(entry->d_name) <= 0 || strchr(entry->d_name, '.')) continue;
    snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
    if (!read_text(file, text, sizeof text) || sscanf(text, "%lld %d", &bytes, &mps) != 2) continue;
    if (under_mps >= 0 && mps != under_mps) continue;
    if (list && found < *size) {
      list[found].pid = (unsigned)atoi(entry->d_name);
      list[found].bytes = bytes < 0 ? ~0ULL : (u64)bytes;
      list[found].gpu_instance = list[found].compute_instance = ~0u;
    }
    found++;
  }
  if (folder) closedir(folder);
  int enough = found == 0 || (list && found <= *size);
  *size = found;
  return enough ? OK : SMALL;
}
int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned *size, struct process *list) {
  CHECK(device);
  return processes(device, 0, size, list);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(struct device *device, unsigned *size, struct process *list) {
  CHECK(device);
  return processes(device, 1, size, list);
}

struct memory { u64 total, free, used; };
int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *answer) {
  CHECK(device);
  struct process list[256];
  unsigned size = 256;
  if (!number_of(device, "memory_bytes", &answer->total)) return NOT_SUPPORTED;
  answer->used = number_or(device, "memory_reserved_bytes", 0);
  if (processes(device, -1, &size, list) == OK)
    for (unsigned at = 0; at < size; at++) if (list[at].bytes != ~0ULL) answer->used += list[at].bytes;
  answer->free = answer->total > answer->used ? answer->total - answer->used : 0;
  return OK;
}

/* Setters: what was asked is recorded, also when it is refused or ignored. */
#define SETTER(device, value) \
  int ignored = 0; \
  record(device, __func__, value); \
  do { int code = obstacle(device, __func__, &ignored); if (code) return code; if (ignored) return OK; } while (0)

int nvmlDeviceSetGpuLockedClocks(struct device *device, unsigned low, unsigned high) {
  SETTER(device, high);
  if (low > high) return INVALID;
  put(device, "locked_min_mhz", low);
  put(device, "locked_max_mhz", high);
  return OK;
}
int nvmlDeviceResetGpuLockedClocks(struct device *device) {
  SETTER(device, 0);
  drop(device, "locked_min_mhz");
  drop(device, "locked_max_mhz");
  return OK;
}
int nvmlDeviceSetPowerManagementLimit(struct device *device, unsigned milliwatts) {
  SETTER(device, milliwatts);
  if (milliwatts < number_or(device, "power_min_mw", 0) || milliwatts > number_or(device, "power_max_mw", 0)) return INVALID;
  put(device, "power_limit_mw", milliwatts);
  return OK;
}
int nvmlDeviceSetComputeMode(struct device *device, int mode) {
  SETTER(device, (u64)mode);
  put(device, "compute_mode", (u64)mode);
  return OK;
}

struct set { int registered[MOST]; };
struct event { struct device *device; u64 type, data; unsigned gpu_instance, compute_instance; };
int nvmlEventSetCreate(struct set **set) { *set = calloc(1, sizeof **set); return *set ? OK : INVALID; }
int nvmlEventSetFree(struct set *set) { free(set); return OK; }
int nvmlDeviceRegisterEvents(struct device *device, u64 types, struct set *set) {
  CHECK(device);
  if ((types & number_or(device, "event_types", 0)) != types) return NOT_SUPPORTED;
  set->registered[device->number] = 1;
  return OK;
}
/* The oldest event of a registered GPU; one lost GPU in the set spoils it. */
int nvmlEventSetWait_v2(struct set *set, struct event *event, unsigned timeout_ms) {
  for (long waited_ms = 0;; waited_ms += 10) {
    char path[4096], first[300] = "", text[64];
    for (int number = 0; number < MOST; number++)
      if (set->registered[number] && has(&devices[number], "lost")) return LOST;
    snprintf(path, sizeof path, "%s/events", root());
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder && (entry = readdir(folder)))
      if (!strchr(entry->d_name, '.') && (!*first || strcmp(entry->d_name, first) < 0))
        snprintf(first, sizeof first, "%s", entry->d_name);
    if (folder) closedir(folder);
    if (*first) {
      int number;
      u64 xid;
      char file[4500];
      snprintf(file, sizeof file, "%s/%s", path, first);
      int read_it = read_text(file, text, sizeof text);
      unlink(file);
      if (read_it && sscanf(text, "%d %llu", &number, &xid) == 2 && set->registered[number]) {
        memset(event, 0, sizeof *event);
        event->device = &devices[number];
        event->type = 8;
        event->data = xid;
        return OK;
      }
      continue;
    }
    if (waited_ms >= (long)timeout_ms) return TIMEOUT;
    pause_ms(10);
  }
}
