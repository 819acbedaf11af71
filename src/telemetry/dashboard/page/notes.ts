/** A dialog in which a person writes notes and tags of runs. */
import type { Annotation } from '../annotation.ts'
import type { ShownRun } from '../runs.ts'
import { element } from './elements.ts'
import type { Row } from './rows.ts'

/** What the fields have for several runs: the note if all have the same, and the tags that all have. */
export function sharedBy(annotations: readonly Annotation[]): Annotation {
  const [first, ...others] = annotations as [Annotation, ...Annotation[]]
  const isSame = others.every(({ note }) => note === first.note)
  return {
    note: isSame ? first.note : '',
    tags: first.tags.filter((tag) => others.every(({ tags }) => tags.includes(tag))),
  }
}

/** A run's annotation after a person has changed the fields from `before` to `after`: what was not changed stays as it is. */
export function edited(own: Annotation, before: Annotation, after: Annotation): Annotation {
  const others = own.tags.filter((tag) => !before.tags.includes(tag) && !after.tags.includes(tag))
  return { note: after.note === before.note ? own.note : after.note, tags: [...others, ...after.tags] }
}

export class NotesDialog {
  readonly root: HTMLDialogElement
  readonly #title = element('h2', { id: 'notes-title' })
  readonly #note = element('textarea', { rows: '5', cols: '60', maxlength: '4000' })
  readonly #tags = element('input', { type: 'text', size: '40', placeholder: 'baseline broken' })
  readonly #told = element('p', { class: 'quiet', role: 'status' })
  readonly #write: (id: string, annotation: Annotation) => Promise<unknown>
  #runs: readonly ShownRun[] = []
  #before: Annotation = { note: '', tags: [] }

  constructor(write: (id: string, annotation: Annotation) => Promise<unknown>) {
    this.#write = write
    const save = element('button', { type: 'submit' }, 'save')
    const cancel = element('button', { type: 'button', click: () => this.root.close() }, 'cancel')
    const submit = (event: Event): void => {
      event.preventDefault()
      void this.#save()
    }
    this.root = element(
      'dialog',
      { id: 'notes', 'aria-labelledby': 'notes-title' },
      element(
        'form',
        { submit },
        this.#title,
        element('label', { class: 'above' }, 'note', this.#note),
        element('label', { class: 'above' }, 'tags, separated by spaces', this.#tags),
        this.#told,
        element('div', { class: 'legend' }, save, cancel),
      ),
    )
  }

  /** Opens the dialog for the runs of a row. */
  open({ name, runs }: Row): void {
    this.#runs = runs
    this.#before = sharedBy(runs.map(({ annotation }) => annotation))
    this.#title.textContent = runs.length === 1 ? `Notes on ${name}` : `Notes on ${name} (${runs.length} runs)`
    this.#note.value = this.#before.note
    this.#tags.value = this.#before.tags.join(' ')
    const numNotes = new Set(runs.map(({ annotation }) => annotation.note)).size
    this.#told.textContent =
      numNotes > 1 ? `The runs have ${numNotes} notes, which stay unless you write one here.` : ''
    this.root.showModal()
  }

  async #save(): Promise<void> {
    const tags = [...new Set(this.#tags.value.split(/\s+/).filter(Boolean))]
    const after = { note: this.#note.value.trim(), tags }
    try {
      for (const { id, annotation } of this.#runs) await this.#write(id, edited(annotation, this.#before, after))
      this.root.close()
    } catch (error) {
      this.#told.textContent = (error as Error).message
    }
  }
}
