/* SPDX-License-Identifier: Apache-2.0 */
/* From the PVH entry (32-bit, paging off, EBX = start info) to payload_main() in long mode, over
 * identity page tables that are part of the image, so that nothing has to be computed at start: on a
 * PVM host an instruction in ring 0 costs a microsecond. */

#define CR0_PG_PE 0x80000001
#define CR4_PAE 0x20
#define MSR_EFER 0xc0000080
#define EFER_LME 0x100
#define MSR_X2APIC_EOI 0x80b
#define PAGE_TABLE 0x03           /* present, writable */
#define PAGE_2M 0x83              /* the same, and large */

        .section .note.pvh, "a", @note
        .align 4
        .long 4, 4, 18            /* name and descriptor size, XEN_ELFNOTE_PHYS32_ENTRY */
        .asciz "Xen"
        .long start32

        .section .text.start, "ax", @progbits
        .code32
        .globl start32
start32:
        cli
        movl $stack_top, %esp
        movl %ebx, start_info
        movl $CR4_PAE, %eax
        movl %eax, %cr4
        movl $pml4, %eax
        movl %eax, %cr3
        movl $MSR_EFER, %ecx
        movl $EFER_LME, %eax
        xorl %edx, %edx
        wrmsr
        movl $CR0_PG_PE, %eax
        movl %eax, %cr0
        lgdt gdt_register
        ljmp $0x08, $start64

        .code64
start64:
        movl $0x10, %eax
        movl %eax, %ds
        movl %eax, %es
        movl %eax, %ss
        movl %eax, %fs
        movl %eax, %gs
        movl $stack_top, %esp
        lidt idt_register(%rip)
        movl start_info(%rip), %edi
        call payload_main
1:      cli
        hlt
        jmp 1b

/* void wait_for_interrupt(void): sleeps until one comes, with interrupts off before and after.
 * The handler does not return to where it interrupted, which is always the HLT below: KVM's
 * emulator has no IRETQ, and we don't need one. */
        .globl wait_for_interrupt
wait_for_interrupt:
        movq %rsp, resume_stack(%rip)
        sti
        hlt
        cli
        ret

        .globl timer_entry
timer_entry:
        incq ticks(%rip)
        .globl interrupt_entry
interrupt_entry:
        cld
        movl $MSR_X2APIC_EOI, %ecx
        xorl %eax, %eax
        xorl %edx, %edx
        wrmsr
        movq resume_stack(%rip), %rsp
        ret

/* An exception: nothing here causes one on purpose, so say which and stop. */
        .macro exception number
        pushq $\number
        jmp exception_common
        .balign 16
        .endm

        .balign 16
        .globl exception_entries
exception_entries:
        .set i, 0
        .rept 32
        exception i
        .set i, i + 1
        .endr
exception_common:
        popq %rdi
        movq (%rsp), %rsi
        movq 8(%rsp), %rdx
        call payload_exception
1:      hlt
        jmp 1b

        .section .data
        .balign 4096
        .globl pml4
pml4:   .quad pdpt + PAGE_TABLE
        .fill 511, 8, 0
pdpt:   .quad pd + PAGE_TABLE, pd + 0x1000 + PAGE_TABLE, pd + 0x2000 + PAGE_TABLE, pd + 0x3000 + PAGE_TABLE
        .fill 508, 8, 0
pd:     .set i, 0
        .rept 2048
        .quad (i << 21) + PAGE_2M
        .set i, i + 1
        .endr

        .balign 16
gdt:    .quad 0
        .quad 0x00af9b000000ffff  /* 64-bit code */
        .quad 0x00cf93000000ffff  /* data */
gdt_register:
        .word . - gdt - 1
        .long gdt
        .balign 16
        .globl idt_register
idt_register:
        .word 4095
        .quad idt
        .globl start_info
start_info:
        .long 0

        .section .bss
        .balign 16
        .globl idt
idt:    .skip 4096
resume_stack:
        .skip 8
        .globl ticks
ticks:  .skip 8
        .balign 16
        .skip 65536
stack_top:

        .section .note.GNU-stack, "", @progbits
