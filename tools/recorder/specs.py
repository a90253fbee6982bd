#!/usr/bin/env python3
"""Prints the specs of tests/truth: `./specs.py text` (transformers) or `./specs.py vision` (torchvision)."""
import json, sys

def text():
    tiny=dict(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
    def hf(cls,cfg,args,**k): return {"model":{"class":cls,"config":cfg,"args":args},"batch":2,"seq":64,**k}
    fam={
     'gpt2':hf('GPT2LMHeadModel','GPT2Config',dict(n_layer=2,n_embd=128,n_head=4,vocab_size=1000)),
     'llama':hf('LlamaForCausalLM','LlamaConfig',dict(num_key_value_heads=2,**tiny)),
     'qwen2':hf('Qwen2ForCausalLM','Qwen2Config',dict(num_key_value_heads=2,**tiny)),
     'qwen3':hf('Qwen3ForCausalLM','Qwen3Config',dict(num_key_value_heads=2,head_dim=32,**tiny)),
     'mistral':hf('MistralForCausalLM','MistralConfig',dict(num_key_value_heads=2,sliding_window=None,**tiny)),
     'gemma2':hf('Gemma2ForCausalLM','Gemma2Config',dict(num_key_value_heads=2,head_dim=32,**tiny)),
     'phi3':hf('Phi3ForCausalLM','Phi3Config',dict(num_key_value_heads=2,pad_token_id=0,**tiny)),
     'gpt_neox':hf('GPTNeoXForCausalLM','GPTNeoXConfig',tiny),
     'opt':hf('OPTForCausalLM','OPTConfig',dict(hidden_size=128,num_hidden_layers=2,ffn_dim=256,num_attention_heads=4,vocab_size=1000,word_embed_proj_dim=128)),
     'bert':hf('BertForMaskedLM','BertConfig',tiny),
     'bert-cls':hf('BertForSequenceClassification','BertConfig',tiny,inputs='cls'),
     'roberta':hf('RobertaForMaskedLM','RobertaConfig',tiny),
     'roberta-cls':hf('RobertaForSequenceClassification','RobertaConfig',tiny,inputs='cls'),
     't5':hf('T5ForConditionalGeneration','T5Config',dict(d_model=128,d_kv=32,d_ff=256,num_layers=2,num_heads=4,vocab_size=1000,decoder_start_token_id=0),inputs='seq2seq'),
     'flan-t5':hf('T5ForConditionalGeneration','T5Config',dict(d_model=128,d_kv=32,d_ff=256,num_layers=2,num_heads=4,vocab_size=1000,decoder_start_token_id=0,feed_forward_proj='gated-gelu',tie_word_embeddings=False),inputs='seq2seq'),
     'vit':hf('ViTForImageClassification','ViTConfig',dict(hidden_size=128,intermediate_size=256,num_hidden_layers=2,num_attention_heads=4,image_size=64),inputs='image',build='real'),
     'dinov2':dict(hf('Dinov2ForImageClassification','Dinov2Config',dict(hidden_size=128,num_hidden_layers=2,num_attention_heads=4,image_size=56),inputs='image',build='real'),seq=56),
    }
    out=[]
    def emit(id,spec):
        out.append({"id": id, "spec": spec})
    # optimizers, loop variants on llama and gpt2 first
    opts={
     'sgd':('SGD',{}),'sgdm':('SGD',{'momentum':0.9}),'sgdn':('SGD',{'momentum':0.9,'nesterov':True,'weight_decay':0.01}),'sgd-loop':('SGD',{'momentum':0.9,'foreach':False}),'sgdm-fused':('SGD',{'momentum':0.9,'fused':True}),
     'sgdn-loop':('SGD',{'momentum':0.9,'nesterov':True,'weight_decay':0.01,'foreach':False}),
     'adam':('Adam',{}),'adam-wd':('Adam',{'weight_decay':0.01}),'adam-wd-loop':('Adam',{'weight_decay':0.01,'foreach':False}),'adam-ams':('Adam',{'amsgrad':True}),
     'adam-fused':('Adam',{'fused':True}),
     'adamw-ams':('AdamW',{'amsgrad':True}),'adamw-ams-loop':('AdamW',{'amsgrad':True,'foreach':False}),'adamw-fused':('AdamW',{'fused':True}),'adamw-fused-ams':('AdamW',{'fused':True,'amsgrad':True}),'adamw-loop':('AdamW',{'foreach':False}),'adamw-max':('AdamW',{'maximize':True}),
     'adamw-capt':('AdamW',{'capturable':True}),
     'rmsprop':('RMSprop',{}),'rmsprop-full':('RMSprop',{'momentum':0.9,'centered':True,'weight_decay':0.01}),'rmsprop-loop':('RMSprop',{'foreach':False}),'rmsprop-full-loop':('RMSprop',{'momentum':0.9,'centered':True,'weight_decay':0.01,'foreach':False}),
     'adafactor':('Adafactor',{}),'adafactor-loop':('Adafactor',{'foreach':False}),'adafactor-fe':('Adafactor',{'foreach':True}),
     'adagrad':('Adagrad',{}),'adadelta':('Adadelta',{}),'adamax':('Adamax',{}),'nadam':('NAdam',{}),'radam':('RAdam',{}),'rprop':('Rprop',{}),'asgd':('ASGD',{}),
    }
    for n,(name,args) in opts.items():
        for f,p in (('llama','bf16'),('gpt2','amp')):
            emit(f'{f}-{p}-{n}',dict(fam[f],precision=p,optimizer={'name':name,'args':args}))
    for f in ('llama','gpt2'):
        for p in ('fp32','amp','bf16'):
            emit(f'{f}-{p}-clip',dict(fam[f],precision=p,clip=1.0))
            emit(f'{f}-{p}-accum3',dict(fam[f],precision=p,accum=3))
            emit(f'{f}-{p}-ema',dict(fam[f],precision=p,ema=True))
        emit(f'{f}-amp-clip-loop',dict(fam[f],precision='amp',clip=1.0,optimizer={'name':'AdamW','args':{'foreach':False}}))
        emit(f'{f}-amp-drop',dict(fam[f],precision='amp',drop_output=True))
        emit(f'{f}-amp-dropafter',dict(fam[f],precision='amp',drop_after=True))
        emit(f'{f}-amp-preopt',dict(fam[f],precision='amp',preopt=True,steps=1))
        emit(f'{f}-amp-accum2-ckpt',dict(fam[f],precision='amp',accum=2,checkpoint=True))
    for f,s in fam.items():
        for p in ('fp32','amp','amp-fp16','bf16'):
            for a in ('auto','efficient','math','eager'):
                emit(f'{f}-{p}-{a}',dict(s,precision=p,attn=a))
        for p,a in (('amp','auto'),('amp','math'),('amp','eager'),('bf16','auto'),('fp32','auto'),('fp32','eager'),('amp-fp16','auto'),('bf16','eager')):
            emit(f'{f}-{p}-{a}-ckpt',dict(s,precision=p,attn=a,checkpoint=True))
    # variants
    v=lambda f,id,p='amp',**a: emit(id+'-'+p,dict(fam[f],model=dict(fam[f]['model'],args={**fam[f]['model']['args'],**a}),precision=p))
    for p in ('fp32','amp','bf16'):
        v('llama','llama-bias',p,attention_bias=True,mlp_bias=True)
        v('llama','llama-tied',p,tie_word_embeddings=True)
        v('llama','llama-hd',p,head_dim=48)
        v('llama','llama-mha',p,num_key_value_heads=4)
        v('llama','llama-drop',p,attention_dropout=0.1)
        v('mistral','mistral-sw',p,sliding_window=32)
        v('mistral','mistral-sw64',p,sliding_window=64)
        v('mistral','mistral-sw4096',p,sliding_window=4096)
        v('qwen2','qwen2-sw',p,use_sliding_window=True,sliding_window=32,max_window_layers=1)
        v('qwen3','qwen3-tied',p,tie_word_embeddings=True)
        v('phi3','phi3-mha',p,num_key_value_heads=4)
        v('phi3','phi3-sw',p,sliding_window=32)
        v('phi3','phi3-tied',p,tie_word_embeddings=True)
        v('gpt_neox','gpt_neox-serial',p,use_parallel_residual=False)
        v('gpt_neox','gpt_neox-rot1',p,rotary_pct=1.0)
        v('opt','opt-proj',p,word_embed_proj_dim=64)
        v('opt','opt-post',p,word_embed_proj_dim=64,do_layer_norm_before=False)
        v('gemma2','gemma2-sw',p,sliding_window=32)
        v('gpt2','gpt2-relu',p,activation_function='gelu')
        v('dinov2','dinov2-swiglu',p,use_swiglu_ffn=True)
        v('t5','t5-dec1',p,num_decoder_layers=1)
        v('bert','bert-nodrop',p,hidden_dropout_prob=0.0,attention_probs_dropout_prob=0.0)
        v('llama','llama-nodd',p,hidden_size=132,num_attention_heads=4,head_dim=33)
    return out


def vision():
    fams={
    'alexnet':['alexnet'],'vgg':['vgg11','vgg11_bn','vgg13','vgg13_bn','vgg16','vgg16_bn','vgg19','vgg19_bn'],'squeezenet':['squeezenet1_0','squeezenet1_1'],
    'googlenet':['googlenet'],'inception':['inception_v3'],'densenet':['densenet121','densenet161','densenet169','densenet201'],
    'resnet':['resnet18','resnet34','resnet50','resnet101','resnet152','resnext50_32x4d','resnext101_32x8d','resnext101_64x4d','wide_resnet50_2','wide_resnet101_2'],
    'mobilenet':['mobilenet_v2','mobilenet_v3_large','mobilenet_v3_small'],'mnasnet':['mnasnet0_5','mnasnet0_75','mnasnet1_0','mnasnet1_3'],
    'shufflenet':['shufflenet_v2_x0_5','shufflenet_v2_x1_0','shufflenet_v2_x1_5','shufflenet_v2_x2_0'],
    'efficientnet':['efficientnet_b%d'%i for i in range(8)]+['efficientnet_v2_s','efficientnet_v2_m','efficientnet_v2_l'],
    'regnet':['regnet_y_400mf','regnet_y_800mf','regnet_y_1_6gf','regnet_y_3_2gf','regnet_y_8gf','regnet_y_16gf','regnet_y_32gf','regnet_x_400mf','regnet_x_800mf','regnet_x_1_6gf','regnet_x_3_2gf','regnet_x_8gf','regnet_x_16gf','regnet_x_32gf'],
    'convnext':['convnext_tiny','convnext_small','convnext_base','convnext_large'],'swin':['swin_t','swin_s','swin_b','swin_v2_t','swin_v2_s','swin_v2_b'],
    'vit':['vit_b_16','vit_b_32','vit_l_16','vit_l_32','vit_h_14'],
    }
    args={'googlenet':dict(aux_logits=False,init_weights=False),'inception_v3':dict(aux_logits=False,init_weights=False)}
    seq={'alexnet':224,'inception_v3':160,'vit_b_16':224,'vit_b_32':224,'vit_l_16':224,'vit_l_32':224,'vit_h_14':224}
    out=[]
    def emit(m,p,o,tag='',**k):
        id=f'tv-{m}-{p}{tag}'
        out.append({"id":id,"spec":{"model":{"tv":m,"args":k.pop('args',args.get(m,{}))},"batch":2,"seq":seq.get(m,64),"precision":p,"optimizer":o,"inputs":"image","build":"real",**k}})
    sgd={'name':'SGD','args':{'momentum':0.9}}; adamw={'name':'AdamW'}
    first=[l[0] for l in fams.values()]+['vgg11_bn','resnet50','mobilenet_v2','mobilenet_v3_large','swin_v2_t','regnet_x_400mf','efficientnet_v2_s','squeezenet1_1','resnext50_32x4d']
    for m in first:
        for p in ('fp32','amp','bf16','amp-fp16'):
            emit(m,p,sgd if p!='bf16' else adamw)
    emit('googlenet','fp32',sgd,'-aux',args=dict(init_weights=False))
    emit('inception_v3','fp32',sgd,'-aux',args=dict(init_weights=False),seq=299)
    for m in ('swin_t','swin_v2_t'):
        emit(m,'fp32',sgd,'-224',seq=224); emit(m,'amp',adamw,'-224',seq=224); emit(m,'fp32',sgd,'-96',seq=96)
    for m in ('vit_b_16','swin_t'):
        for a in ('math','efficient','flash'): emit(m,'amp',sgd,'-'+a,attn=a)
    for m in ('resnet18','vit_b_16','convnext_tiny'):
        emit(m,'amp',adamw,'-accum2',accum=2); emit(m,'fp32',adamw,'-clip',clip=1.0); emit(m,'fp32',{'name':'SGD'},'-sgd0')
    for l in fams.values():
        for m in l:
            if not any(o['id']==f'tv-{m}-fp32' for o in out): emit(m,'fp32',sgd)
    return out


for row in {"text": text, "vision": vision}[sys.argv[1]]():
    print(json.dumps(row))
