// Writes what stands between Node-API and the native bodies, from the signatures of the twins in C (kernel-twins.mjs): a
// native body takes the same parameters, with a pointer for the offset of a column.
/** How Node-API reads a number, and into what; `place`: where a column begins, in bytes from the memory's first. */
const READERS = {
  place: ['int64', 'int64_t'],
  int32_t: ['int32', 'int32_t'],
  uint32_t: ['uint32', 'uint32_t'],
  float: ['double', 'double'],
  double: ['double', 'double'],
  bool: ['bool', 'bool'],
}

/** What asks a processor for its features is declared there. */
const INCLUDES = `#if defined __x86_64__
#include <cpuid.h>
#elif defined __linux__
#include <sys/auxv.h>
#endif
`

/**
 * What a processor has, where the system saves the registers for it. An x64 one is asked itself: not every compiler's library fills
 * in what `__builtin_cpu_supports` reads. Every Mac of ARM has dot products.
 */
const FEATURES = `#if defined __x86_64__
#define KNOWN const bool __attribute__((unused))
  unsigned a = 0, b = 0, c = 0, d = 0, saved = 0;
  __get_cpuid(1, &a, &b, &c, &d);
  if ((c & bit_OSXSAVE) != 0) __asm__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
  const bool saves256 = (saved & 0x06) == 0x06, saves512 = (saved & 0xe6) == 0xe6;
  KNOWN fma = saves256 && (c & bit_FMA) != 0;
  b = 0, c = 0;
  __get_cpuid_count(7, 0, &a, &b, &c, &d);
  KNOWN avx2 = saves256 && (b & bit_AVX2) != 0, avx512f = saves512 && (b & bit_AVX512F) != 0;
  KNOWN avx512bw = (b & bit_AVX512BW) != 0, avx512dq = (b & bit_AVX512DQ) != 0, avx512vl = (b & bit_AVX512VL) != 0;
  KNOWN avx512vnni = (c & 1u << 11) != 0;
#elif defined __linux__
  const bool dotprod = (getauxval(AT_HWCAP) & 1ul << 20) != 0;
#else
  const bool dotprod = true;
#endif
`

const declared = ({ name, type }) => (type.endsWith('*') ? `${type}${name}` : `${type} ${name}`)

/** `kernels.native.h`: the prototype of each body, at the level for which a file is compiled. */
export function prototypesOf(twins) {
  const prototypes = twins.map(({ name, parameters, result }) => {
    return `${result} KERNEL(${name})(${parameters.map(declared).join(', ')});`
  })
  return `/* Made by \`npm run build\` (scripts/native-glue.mjs). */
#include <stdbool.h>
#include <stdint.h>

#define NAME_AT(name, level) name##_##level
#define NAME_OF(name, level) NAME_AT(name, level)
/** The name of a body at the level for which the file is compiled. */
#ifdef __wasm__
#define KERNEL(name) name
#else
#define KERNEL(name) NAME_OF(name, LEVEL)
#endif
/** Says from how much work on a call goes to the native body (scripts/kernel-twins.mjs reads it); below, that in WebAssembly serves. */
#define WORTH(name, work, least)
/** Says that a body is for the processor too, but only for columns that lie outside of WebAssembly's memory. */
#define BEYOND(name)

${prototypes.join('\n')}
`
}

/**
 * The addon: \`levels\`, the names of those that the processor has, the best last; \`bind(bytes, level)\`, an object with a
 * function for each body, over the memory in which \`bytes\` begins; and \`address(column)\`, where a typed array begins.
 * @param {(object & { source: string })[]} twins those that have bodies, each with the name of its body's source
 * @param {Record<string, object>} levels of native-platforms.mjs, for this processor
 */
export function glueOf(twins, levels) {
  const names = Object.keys(levels)
  const includes = names.map((level) => `#define LEVEL ${level}\n#include "kernels.native.h"\n#undef LEVEL`)
  const bodies = twins.map(({ name, source }) => {
    const served = names.map((level) => {
      const { beyond } = levels[level]
      return beyond === undefined || beyond.sources.includes(source) ? level : beyond.level
    })
    return `  {"${name}", call_${name}, {${served.map((level) => `(body)${name}_${level}`).join(', ')}}},`
  })
  const supported = names.map((level) => `    ${levels[level].features.join(' && ') || true},`)
  return `/* Made by \`npm run build\` (scripts/native-glue.mjs). */
${INCLUDES}#include <node_api.h>
#include <stdlib.h>
#include <string.h>

${includes.join('\n')}

typedef void (*body)(void);

/** What a function of the addon holds: where offsets count from, and what it calls. */
struct bound {
  char *base;
  body body;
};

static napi_value refuse(napi_env env, const char *what) {
  napi_throw_type_error(env, NULL, what);
  return NULL;
}

${twins.map(caller).join('\n\n')}

enum { LEVELS = ${names.length}, KERNELS = ${twins.length} };
static const char *const level_names[LEVELS] = {${names.map((name) => `"${name}"`).join(', ')}};
static const struct {
  const char *name;
  napi_callback call;
  body bodies[LEVELS];
} kernels[KERNELS] = {
${bodies.join('\n')}
};

static void has_levels(bool has[LEVELS]) {
${FEATURES}  const bool found[LEVELS] = {
${supported.join('\n')}
  };
  memcpy(has, found, sizeof found);
}

static void release(napi_env env, void *data, void *hint) {
  (void)env, (void)hint;
  free(data);
}

static napi_value bind(napi_env env, napi_callback_info info) {
  napi_value given[2], object;
  size_t count = 2;
  char level[16];
  void *base;
  bool has[LEVELS];
  if (napi_get_cb_info(env, info, &count, given, NULL, NULL) != napi_ok || count != 2 ||
      napi_get_typedarray_info(env, given[0], NULL, NULL, &base, NULL, NULL) != napi_ok ||
      napi_get_value_string_utf8(env, given[1], level, sizeof level, NULL) != napi_ok) {
    return refuse(env, "bind: expected a Uint8Array and the name of a level");
  }
  has_levels(has);
  int which = 0;
  while (which < LEVELS && !(has[which] && strcmp(level, level_names[which]) == 0)) which++;
  if (which == LEVELS) return refuse(env, "bind: expected a level that this processor has");
  if (napi_create_object(env, &object) != napi_ok) return NULL;
  for (int i = 0; i < KERNELS; i++) {
    napi_value function;
    struct bound *bound = malloc(sizeof *bound);
    if (bound == NULL) return refuse(env, "bind: no memory left");
    *bound = (struct bound){base, kernels[i].bodies[which]};
    if (napi_create_function(env, kernels[i].name, NAPI_AUTO_LENGTH, kernels[i].call, bound, &function) != napi_ok ||
        napi_add_finalizer(env, function, bound, release, NULL, NULL) != napi_ok) {
      free(bound);
      return refuse(env, "bind: cannot make a function");
    }
    if (napi_set_named_property(env, object, kernels[i].name, function) != napi_ok) return NULL;
  }
  return object;
}

static napi_value address(napi_env env, napi_callback_info info) {
  napi_value column, result;
  size_t count = 1;
  void *first;
  if (napi_get_cb_info(env, info, &count, &column, NULL, NULL) != napi_ok || count != 1 ||
      napi_get_typedarray_info(env, column, NULL, NULL, &first, NULL, NULL) != napi_ok) {
    return refuse(env, "address: expected a typed array");
  }
  return napi_create_double(env, (double)(uintptr_t)first, &result) == napi_ok ? result : NULL;
}

NAPI_MODULE_INIT() {
  napi_value levels, function;
  bool has[LEVELS];
  has_levels(has);
  if (napi_create_array(env, &levels) != napi_ok) return NULL;
  for (int i = 0, found = 0; i < LEVELS; i++) {
    napi_value name;
    if (!has[i]) continue;
    if (napi_create_string_utf8(env, level_names[i], NAPI_AUTO_LENGTH, &name) != napi_ok) return NULL;
    if (napi_set_element(env, levels, found++, name) != napi_ok) return NULL;
  }
  if (napi_set_named_property(env, exports, "levels", levels) != napi_ok) return NULL;
  if (napi_create_function(env, "bind", NAPI_AUTO_LENGTH, bind, NULL, &function) != napi_ok) return NULL;
  if (napi_set_named_property(env, exports, "bind", function) != napi_ok) return NULL;
  if (napi_create_function(env, "address", NAPI_AUTO_LENGTH, address, NULL, &function) != napi_ok) return NULL;
  if (napi_set_named_property(env, exports, "address", function) != napi_ok) return NULL;
  return exports;
}
`
}

/** What a parameter is called in the function that reads it, among that function's own variables. */
const localOf = ({ name }) => `${name}_given`

/** The function that reads the arguments of one kernel and calls its body. */
function caller({ name, parameters, result }) {
  const isColumn = ({ type }) => type.endsWith('*')
  const reads = parameters.map((parameter, i) => {
    const [reader, type] = isColumn(parameter) ? READERS.place : READERS[parameter.type]
    return [
      `  ${type} ${localOf(parameter)};`,
      `napi_get_value_${reader}(env, given[${i}], &${localOf(parameter)}) != napi_ok`,
    ]
  })
  const handed = parameters.map((parameter) => {
    if (isColumn(parameter)) return `(${parameter.type})(bound->base + ${localOf(parameter)})`
    return parameter.type === 'float' ? `(float)${localOf(parameter)}` : localOf(parameter)
  })
  const signature = `${result} (*)(${parameters.map(({ type }) => type).join(', ')})`
  const call = `((${signature})bound->body)(${handed.join(', ')})`
  return `static napi_value call_${name}(napi_env env, napi_callback_info info) {
  napi_value given[${parameters.length}];
  size_t count = ${parameters.length};
  struct bound *bound;
${reads.map(([declaration]) => declaration).join('\n')}
  if (napi_get_cb_info(env, info, &count, given, NULL, (void **)&bound) != napi_ok || count != ${parameters.length} ||
      ${reads.map(([, read]) => read).join(' ||\n      ')}) {
    return refuse(env, "${name}: expected ${parameters.length} arguments: ${parameters.map((p) => `${p.name} (${isColumn(p) ? 'offset' : p.type})`).join(', ')}");
  }
${
  result === 'void'
    ? `  ${call};\n  return NULL;`
    : `  napi_value result;\n  return napi_create_${READERS[result][0]}(env, ${call}, &result) == napi_ok ? result : NULL;`
}
}`
}
