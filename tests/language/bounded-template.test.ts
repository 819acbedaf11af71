import { Template } from '@huggingface/jinja'
import { describe, expect, test } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import { parseBounded, renderBounded } from '../../src/language/templates/bounded-template.ts'
import { jinjaTemplate } from '../../src/language/templates/chat-template.ts'

const user = (content: string, count = 1) => Array.from({ length: count }, () => ({ role: 'user', content }))
async function rendered(source: string, messages = user('hello')): Promise<string> {
  return (await jinjaTemplate('a model’s template', { default: source })).render(messages)
}
const doubled = (times: number, what: string): string => `{% set x = ${what} %}`.repeat(times)

describe('reading a template that', () => {
  const many = (times: number, open: string, middle: string, close: string): string =>
    `${open.repeat(times)}${middle}${close.repeat(times)}`

  test.each([
    ['is long', 'a'.repeat(500_001), /500001 characters, and at most 500000/],
    ['has blanks in a row', ' '.repeat(1001), /1001 blanks in a row, and at most 1000/],
    ['has blanks and line ends in a row', `{{ 1 ${'\n '.repeat(30_000)} }}`, /60002 blanks in a row/],
    ['nests parentheses', `{{ ${many(20_000, '(', '1', ')')} }}`, /nested too deep/],
    ['nests loops', many(401, '{% for a in b %}', 'x', '{% endfor %}'), /more than 400 deep/],
    ['adds without end', `{{ 1${'+1'.repeat(5000)} }}`, /more than 400 deep/],
    ['filters without end', `{{ a${'|trim'.repeat(5000)} }}`, /more than 400 deep/],
    ['chooses without end', `{% if a %}${'{% elif a %}'.repeat(500)}{% endif %}`, /more than 400 deep/],
    ['nests lists in objects', `{{ ${many(250, '{"a": [', '1', ']}')} }}`, /more than 400 deep/],
    ['says much', '{{ a }}'.repeat(50_000), /more than 50000 statements and expressions/],
  ])('%s is refused', async (_, source, reason) => {
    const read = jinjaTemplate('a model’s template', { default: source })
    await expect(read).rejects.toThrow(InputError)
    await expect(read).rejects.toThrow(reason)
  })

  test('keeps within each of these is taken', async () => {
    expect(await rendered(`${' '.repeat(1000)}x`)).toBe(`${' '.repeat(1000)}x`)
    expect(await rendered(many(390, '{% if true %}', 'x', '{% endif %}'))).toBe('x')
    expect((await rendered('{{ 1 }}'.repeat(49_000))).length).toBe(49_000)
  })
})

describe('a template that', () => {
  test.each([
    ['counts for ever', '{% for i in range(10**9) %}{% endfor %}', /range/],
    ['counts down for ever', '{% for i in range(0, 0 - 10**12, -1) %}{% endfor %}', /range/],
    ['counts in a fraction of nothing', '{% for i in range(0, 1, 0.000000001) %}{% endfor %}', /range/],
    ['counts to what is no number', '{% for i in range("x") %}{% endfor %}', /range/],
    ['loops in loops', `${'{% for i in range(10000) %}'.repeat(4)}x${'{% endfor %}'.repeat(4)}`, /units of work/],
    [
      'loops in loops over nothing but names',
      `${'{% for i in range(9999) %}{{ nobody }}'.repeat(3)}${'{% endfor %}'.repeat(3)}`,
      /work/,
    ],
    ['doubles a text', `{% set x = "ab" %}${doubled(40, 'x ~ x')}{{ x }}`, /characters/],
    ['doubles a text by adding', `{% set x = "ab" %}${doubled(40, 'x + x')}{{ x }}`, /characters/],
    ['doubles a list', `{% set x = ["a"] %}${doubled(40, '[x, x]')}{{ x | tojson }}`, /characters/],
    ['doubles a list by adding', `{% set x = ["a"] %}${doubled(40, 'x + x')}{{ x | length }}`, /characters/],
    ['doubles an object', `{% set x = {"a": 1} %}${doubled(40, '{"a": x, "b": x}')}{{ x == "" }}`, /characters/],
    [
      'doubles in a namespace',
      `{% set n = namespace(x=["a"]) %}${'{% set n.x = [n.x, n.x] %}'.repeat(40)}{{ n.x }}`,
      /characters/,
    ],
    ['holds itself', '{% set n = namespace(x=1) %}{% set n.x = [n, n] %}{{ n.x | tojson }}', /deep/],
    ['nests without end', `{% set x = [1] %}${doubled(300, '[x]')}{{ x }}`, /deep/],
    [
      'puts much for little',
      `{% set x = "a" %}${doubled(16, 'x ~ x')}{{ x.replace("a", x).replace("a", x) }}`,
      /may make/,
    ],
    [
      'puts much for little by another name',
      `{% set x = "a" %}${doubled(16, 'x ~ x')}{% set f = x["replace"] %}{{ f("a", x) }}`,
      /may make/,
    ],
    [
      'puts much for little in a filter',
      `{% set x = "a" %}${doubled(16, 'x ~ x')}{{ x | replace("", x) }}`,
      /may make/,
    ],
    ['joins by much', `{% set x = "a" %}${doubled(16, 'x ~ x')}{{ range(9999) | join(x) }}`, /may make/],
    ['indents by much', '{{ "a\nb" | indent(10**9) }}', /may make/],
    ['indents JSON by much', '{{ [1, 2] | tojson(indent=10**9) }}', /may make/],
    [
      'separates JSON by much',
      `{% set x = "a" %}${doubled(18, 'x ~ x')}{{ range(999) | tojson(separators=(x, x)) }}`,
      /may make/,
    ],
    ['calls itself', '{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}', /deep/],
    [
      'calls itself twice',
      '{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}',
      /work/,
    ],
    ['sorts again and again', `{% for i in range(9999) %}{% set x = range(9999) | sort %}{% endfor %}`, /work/],
    [
      'slices again and again',
      `{% set x = "ab" %}${doubled(16, 'x ~ x')}{% for i in range(9999) %}{% set y = x[::-1] %}{% endfor %}`,
      /work/,
    ],
    [
      'defines again and again',
      `{% for i in range(30000) %}{% macro f() %}${'{{ 1 }}'.repeat(3000)}{% endmacro %}{% endfor %}`,
      /work/,
    ],
  ])('%s is an error that names it and the bound', async (_, source, bound) => {
    if (bound.source.includes('work')) {
      // With less work than a template has, so that the test is cheap.
      expect(() => renderBounded(new Template(source).parsed, {}, 2 ** 24)).toThrow(bound)
      return
    }
    const error = await rendered(source).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(InputError)
    expect((error as Error).message).toMatch(/a model’s template/)
    expect((error as Error).message).toMatch(bound)
  })

  test('runs on for ever ends, and names itself', async () => {
    const source = '{% for i in range(50000) %}{% for i in range(50000) %}{% endfor %}{% endfor %}'
    await expect(rendered(source)).rejects.toThrow(/a model’s template.*too many units of work/)
  })

  test('has more characters than a template has is refused', async () => {
    await expect(rendered(' '.repeat(500_001))).rejects.toThrow(/500001 characters/)
  })

  test('stays within bounds is rendered as ever', async () => {
    expect(
      await rendered('{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}'),
    ).toBe('012531')
    expect(
      await rendered('{{ range(2, 2) | length }}{{ true }}{{ none is none }}{{ False }}{{ [1, none] | tojson }}'),
    ).toBe('0truetruefalse[1, null]')
    expect(await rendered('{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}')).toBe(
      '543210',
    )
    expect(
      await rendered(
        '{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}',
      ),
    ).toBe('013')
    expect(await rendered('{% filter upper %}{{ messages[0].content.replace("l", "L!") }}{% endfilter %}')).toBe(
      'HEL!L!O',
    )
    await expect(rendered('{{ raise_exception("not so") }}')).rejects.toThrow(/not so/)
    await expect(rendered('{{ range(1, 2, 0) }}')).rejects.toThrow(/step/)
  })

  test('goes through a long conversation has room for it', async () => {
    const source = `{% set ns = namespace(last=0) %}{% for message in messages[::-1] %}{% if message.role == 'user' %}
      {%- set ns.last = loop.index0 %}{% endif %}{% endfor %}
      {%- for message in messages %}{% if loop.index0 < messages | length %}<|im_start|>{{ message.role ~ '\\n' }}
      {%- set content = message.content.split('</think>')[-1].lstrip('\\n') | trim | replace('<', '&lt;') %}
      {%- if messages[loop.index0 - 1].role == 'user' %}{{ content }}{% endif %}<|im_end|>{% endif %}{% endfor %}`
    const text = await rendered(source, user('x'.repeat(500), 1000))
    expect(text.length).toBeGreaterThan(500_000)
  })
})

describe('a template runs as in Python', () => {
  const say = (source: string, variables = {}) => renderBounded(parseBounded(source), variables)

  test('where it strips texts', () => {
    expect(say(`[{{ ' \\n a \\n'.strip('\\n') }}]`)).toBe('[ \n a ]')
    expect(say(`[{{ '\\n  a \\n'.lstrip('\\n') }}]`)).toBe('[  a \n]')
    expect(say(`[{{ 'xyaxy'.rstrip('yx') }}]`)).toBe('[xya]')
    expect(say(`[{{ text.strip() }}][{{ text | trim }}]`, { text: '\x1c\x85 a\ufeff ' })).toBe('[a\ufeff][a\ufeff]')
    expect(say(`[{{ ''.strip('a') }}{{ 'aa'.strip('a') }}]`)).toBe('[]')
    expect(say(`{{ '😀a😀'.strip('😁') }}{{ '😀a😀😀'.strip('😀') }}`)).toBe('😀a😀a')
  })

  test('where none becomes a text', () => {
    expect(say('{{ none | string }}{{ 1 | string }}')).toBe('None1')
  })

  test('where an operand has effects, which happen once', () => {
    const counter =
      '{% set ns = namespace(n=0) %}{% macro say(what) %}{% set ns.n = ns.n + 1 %}{{ what }}{% endmacro %}'
    expect(say(`${counter}{{ say('a') | string }}{{ ns.n }}`)).toBe('a1')
    expect(say(`${counter}{{ say(' a ') | trim }}{{ ns.n }}`)).toBe('a1')
    expect(say(`${counter}{{ say(' a ').strip() }}{{ ns.n }}`)).toBe('a1')
  })

  test('where one branch alone sets a name', async () => {
    const source =
      '{% if other is defined %}{% set tools = other %}{% endif %}{% if tools %}T{% endif %}{{ messages | length }}'
    const template = await jinjaTemplate('own', { default: source })
    expect(template.render([{ role: 'user', content: 'a' }], { tools: [{}] })).toBe('T1')
    const both = await jinjaTemplate('own', {
      default: '{% if a %}{% set b = 1 %}{% else %}{% set b = 2 %}{% endif %}{{ b }}',
    })
    expect(both.reads).toEqual(['a'])
  })
})
