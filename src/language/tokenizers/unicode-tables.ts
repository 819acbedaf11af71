/**
 * Characters that Node's Unicode tables have and the reference's lack, as hexadecimal numbers and ranges. The lists come from asking the
 * Rust library `tokenizers` 0.23.3 and Node 20.20 (Unicode 17) about every character.
 */

/** Assigned after Unicode 16: the reference's regular expressions do not know them as letters, digits, marks or signs. */
export const SINCE_16 = matching(
  [
    '88f c5c cdc 1acf-1add 1ae0-1aeb 20c1 2b96 a7ce-a7cf a7d2 a7d4 a7f1 fbc3-fbd2 fd90-fd91 fdc8-fdce 10940-10959',
    '10ec5-10ec7 10ed0-10ed8 10efa-10efb 11b60-11b67 11db0-11ddb 11de0-11de9 16ea0-16eb8 16ebb-16ed3 16ff2-16ff6',
    '187f8-187ff 18d09-18d1e 18d80-18df2 1ccfa-1ccfc 1ceba-1ced0 1cee0-1cef0 1e6c0-1e6de 1e6e0-1e6f5 1e6fe-1e6ff',
    '1f6d8 1f777-1f77a 1f8d0-1f8d8 1fa54-1fa57 1fa8a 1fa8e 1fac8 1facd 1faea 1faef 1fbfa 2b73a-2b73f 2cea2-2cead',
    '323b0-33479',
  ].join(' '),
  'gu',
)

/** Characters that the reference's normal forms do not change, because their combining classes and compositions came after Unicode 9. */
export const UNCOMPOSED = matching(
  [
    '7fd 897-89f 8ca-8d3 9fe c3c d3b-d3c eba 1715 1abf-1add 1ae0-1aeb 1df6-1dfa a82c 105c9 105d2 105da 105e4',
    '10d24-10d27 10d69-10d6d 10eab-10eac 10efa-10efb 10efd-10eff 10f46-10f50 10f82-10f85 11070 1133b 11380-113e2',
    '1145e 11839-1183a 11930-11943 119e0 11a34 11a47 11a99 11d42 11d44-11d45 11d97 11f41-11f42 16100-1612f',
    '16d40-16d79 16ff0-16ff1 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef 1e6e3 1e6e6 1e6ee-1e6ef',
    '1e6f5',
  ].join(' '),
)

/** Compatible forms that came after Unicode 9. */
export const INCOMPATIBLE = matching(
  '32ff a7f1-a7f4 ab69 10780-107bf 1ccd6-1ccf9 1df95-1df9f 1e030-1e06d 1ee00-1eeff 1f100-1f1ff 1fbf0-1fbf9',
)

function matching(characters: string, flags = 'u'): RegExp {
  return new RegExp(`([${characters.replace(/[0-9a-f]+/g, '\\u{$&}').replaceAll(' ', '')}])`, flags)
}
